// native/replay/module_aside.cpp: Aside as Python sees it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "aside.h"
#include "module.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// Most bytes that unfinished items may hold. Beyond that, adding an item first waits for all
// others.
constexpr std::size_t kMostHeld = std::size_t{32} << 20;

// An item, and the Python objects that it needs.
struct Held {
    Work work;
    std::vector<nb::object> needed;  // steps, and the file
    Buffers buffers, factor;
    std::size_t bytes = 0;
    bool told = true;  // whether the results have an entry for it
};

// Bytes of one read; other items may be read in between.
constexpr std::size_t kRead = std::size_t{8} << 20;

[[noreturn]] void raise(const Unread &unread) {
    if (unread.code == 0)
        PyErr_SetString(PyExc_EOFError, unread.what());
    else
        PyErr_SetObject(PyExc_OSError, nb::make_tuple(unread.code, unread.what()).ptr());
    throw nb::python_error();
}

Stretch stretch(const nb::object &file, std::int64_t offset, std::int64_t count, std::int64_t bytes,
                std::int64_t step) {
    std::int64_t behind = 0, end = 0;
    if (offset < 0 || count <= 0 || bytes <= 0 || step < 0 ||
        __builtin_mul_overflow(count, std::max(bytes, step), &behind) ||
        __builtin_add_overflow(offset, behind, &end))
        throw nb::value_error("a file has no such bytes");
    const int descriptor = PyObject_AsFileDescriptor(file.ptr());
    if (descriptor < 0) throw nb::python_error();
    return {descriptor,
            {offset, static_cast<std::size_t>(count), static_cast<std::size_t>(bytes),
             static_cast<std::size_t>(step)}};
}

Scale scale(std::vector<double> factors, std::int64_t each, std::size_t bytes) {
    const std::size_t row = factors.size() * sizeof(float);
    if (factors.empty() || each <= 0 || static_cast<std::size_t>(each) > bytes / row ||
        bytes % (row * static_cast<std::size_t>(each)) != 0)
        throw nb::value_error("so many numbers have no such factors");
    return {std::move(factors), static_cast<std::size_t>(each)};
}

class PyAside {
public:
    using Pieces = std::vector<std::pair<nb::object, nb::sequence>>;
    using Source = std::tuple<nb::object, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
    using Factors = std::pair<std::vector<double>, std::int64_t>;

    PyAside() : works_(std::make_unique<Aside>()) {}
    PyAside(const PyAside &) = delete;
    PyAside &operator=(const PyAside &) = delete;

    ~PyAside() {
        if (process_ != getpid()) {  // the thread is the parent's and may hold the guard
            works_.release();
            for (std::unique_ptr<Held> &one : held_) one.release();
            pages_.release();
            return;
        }
        const Unlocked unlocked;
        works_.reset();
    }

    void run(const Pieces &pieces, nb::handle factor, const std::optional<Source> &source,
             std::optional<Factors> factors) {
        check_process();
        auto made = std::make_unique<Held>();
        if (source) {
            made->work.source.emplace(std::apply(stretch, *source));
            made->needed.push_back(std::get<0>(*source));
        }
        if (factors && !source) throw nb::value_error("factors are of what is read");
        if (factors)
            made->work.scale.emplace(scale(std::move(factors->first), factors->second,
                                           made->work.source->bytes()));
        for (const auto &[object, slots] : pieces) add(*made, object, slots);
        if (!factor.is_none()) {
            made->factor.add(factor, true, "a factor");
            made->work.factor = made->factor.memory()[0];
        }
        let_go();
        if (bytes_ > kMostHeld) wait_for_all();
        add(std::move(made));
    }

    void read(const nb::object &file, std::int64_t offset, nb::handle into) {
        check_process();
        Buffers whole;
        whole.add(into, true, "what is read");
        const Memory memory = whole.memory()[0];
        for (std::size_t begin = 0; begin < memory.bytes; begin += kRead) {
            const std::size_t bytes = std::min(kRead, memory.bytes - begin);
            auto made = std::make_unique<Held>();
            made->told = false;
            made->buffers.add(into, true, "what is read");
            made->work.into = static_cast<std::byte *>(memory.address) + begin;
            made->work.source.emplace(stretch(file, offset + static_cast<std::int64_t>(begin), 1,
                                              static_cast<std::int64_t>(bytes), 0));
            made->needed.push_back(file);
            add(std::move(made));
        }
        let_go();
    }

    void bring(nb::handle buffer) {
        check_process();
        leave_pages();
        auto made = std::make_unique<Buffers>();
        made->add(buffer, true, "pages");
        const Memory &whole = made->memory()[0];
        const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(whole.address);
        const std::uintptr_t first = (begin + page - 1) / page * page;
        const std::uintptr_t last = (begin + whole.bytes) / page * page;
        pages_ = std::move(made);
        if (first < last)
            works_->bring({reinterpret_cast<void *>(first), static_cast<std::size_t>(last - first)});
    }

    void leave_pages() {
        check_process();
        {
            const Unlocked unlocked;
            works_->leave_pages();
        }
        pages_.reset();
    }

    std::vector<bool> wait() {
        check_process();
        wait_for_all();
        std::vector<bool> lost = std::move(lost_);
        lost_.clear();
        const std::exception_ptr failure = std::exchange(failure_, nullptr);
        if (failure) rethrow(failure);
        return lost;
    }

private:
    void check_process() const {
        if (process_ != getpid())
            throw Stopped("this is of the parent process, whose thread a forked one has not");
    }

    void add(std::unique_ptr<Held> one) {
        bytes_ += one->bytes;
        works_->add(one->work);
        held_.push_back(std::move(one));
    }

    static void add(Held &held, const nb::object &object, const nb::sequence &slots) {
        HeldStep step = hold(object);
        const nb::tuple given(slots);
        check_plane_count(step.step, given.size());
        const std::vector<Plane> planes = planes_of(step.step);
        Piece piece{&step.step, {}};
        for (std::size_t i = 0; i < given.size(); ++i) {
            const bool reads = step.step.slots[planes[i].slot].access == VTENSOR_READ;
            const std::string label = plane_label(step.step, planes[i]);
            if (given[i].is_none()) {
                if (!held.work.source || !reads)
                    throw nb::value_error((label + " is no memory").c_str());
                piece.memory.push_back({nullptr, held.work.source->bytes()});
                continue;
            }
            held.buffers.add(given[i], !reads, label);
            const Memory &memory = held.buffers.memory().back();
            if (memory.address == nullptr) throw nb::value_error((label + " is empty").c_str());
            piece.memory.push_back(memory);
            held.bytes += memory.bytes;
        }
        held.work.pieces.push_back(std::move(piece));
        held.needed.push_back(std::move(step.capsule));
    }

    void wait_for_all() {
        {
            const Unlocked unlocked;
            works_->wait_until_left(0);
        }
        let_go();
    }

    // Releases items that are over; only their results stay.
    void let_go() {
        while (!held_.empty() && works_->is_over(held_.front()->work)) {
            const Held &one = *held_.front();
            if (one.work.failure && !failure_) {
                failure_ = one.work.failure;
                failed_ = lost_.size();
            }
            if (one.told) lost_.push_back(one.work.lost);
            bytes_ -= one.bytes;
            held_.pop_front();
        }
    }

    void rethrow(const std::exception_ptr &failure) const {
        try {
            std::rethrow_exception(failure);
        } catch (StepFailed &failed) {
            failed.index = failed_;
            throw;
        } catch (const Unread &unread) {
            raise(unread);
        } catch (const std::invalid_argument &wrong) {
            nb::object error = nb::handle(PyExc_ValueError)(wrong.what());
            error.attr("index") = failed_;
            PyErr_SetObject(PyExc_ValueError, error.ptr());
            throw nb::python_error();
        }
    }

    std::deque<std::unique_ptr<Held>> held_;  // in the order in which they were added
    std::unique_ptr<Buffers> pages_;
    std::unique_ptr<Aside> works_;  // destroyed before the objects that its items need
    std::vector<bool> lost_;        // results of released items
    std::exception_ptr failure_;
    std::size_t failed_ = 0;
    std::size_t bytes_ = 0;
    const pid_t process_ = getpid();
};

}  // namespace

void bind_aside(nb::module_ &m) {
    nb::class_<PyAside>(m, "Aside", nb::is_final(),
                        R"(A worker thread that runs queued items, while its maker goes on.

Each call of ``run`` or ``read`` queues items, which may run in any order. The thread ends
with this object.)")
        .def(nb::init<>())
        .def("run", &PyAside::run, "pieces"_a, "factor"_a = nb::none(), "source"_a = nb::none(),
             "factors"_a = nb::none(),
             nb::sig("def run(self, pieces: collections.abc.Sequence[tuple[object, "
                     "collections.abc.Sequence[object]]], factor: object | None = None, "
                     "source: tuple[object, int, int, int, int] | None = None, "
                     "factors: tuple[collections.abc.Sequence[float], int] | None = None) "
                     "-> None"),
             R"(Queue one item: to read bytes of a file, then to run steps one after the other.

If unfinished items hold more than 32 MiB, the call waits for all of them first.

Args:
    pieces: pairs of a step and its memory, as for ``execute``; None in place of memory that
        the step reads stands for the bytes of the file.
    factor: a buffer whose subnormal floats are cleared at the end, as by
        ``clear_subnormals``; it, all memory and the file are kept alive until then.
    source: the file or its descriptor, which the caller keeps open; the offset of the first
        row, the number of rows, the bytes of a row, and the bytes from the beginning of a
        row to that of the next.
    factors: a list of numbers, and how many f32 numbers of the file each of them
        multiplies, in f64; the list repeats.

Raises:
    TypeError, ValueError: as ``execute``; also if ``source`` or ``factors`` is invalid.
    Stopped: the thread was inherited by a forked process, where it does not run.)")
        .def("read", &PyAside::read, "file"_a, "offset"_a, "into"_a,
             R"(Queue the reading of a file or descriptor, from byte ``offset`` on, into a buffer.

``into``: the buffer, which is filled.

Raises:
    TypeError, ValueError: the memory, the file or the offset is invalid.
    Stopped: the thread was inherited by a forked process, where it does not run.)")
        .def("bring", &PyAside::bring, "pages"_a,
             R"(Touch pages while nothing is queued, so that the system provides them early.

``pages``: a writable buffer, kept alive until the next call, which ends the touching of
earlier pages. Objects of this class together touch at most 512 MiB.)")
        .def("leave_pages", &PyAside::leave_pages,
             "Stop touching pages, and wait until the thread touches none.")
        .def("wait", &PyAside::wait,
             R"(Wait until all items are over; the calling thread runs some of them.

Returns:
    For each ``run`` since the last call, whether its ``factor`` had subnormals.

Raises:
    StepFailed: a step failed; ``index`` counts ``run`` calls since ``wait``, from 0.
    ValueError: memory is not what a step takes; ``index`` likewise.
    OSError, EOFError: a file cannot be read, or is shorter.)");
}

}  // namespace vtensor::replay
