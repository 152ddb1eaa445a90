// native/replay/module.cpp: the step runner as Python sees it.
#include "module.h"
#include "offsets.h"
#include "subnormal.h"
#include "turn.h"

#include <dlfcn.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <string>
#include <system_error>
#include <thread>

#include "vtensor/forks.h"

using namespace nb::literals;

namespace vtensor::replay {

bool offers_step(nb::handle object) {
    return PyCapsule_CheckExact(object.ptr()) || nb::hasattr(object, "__vtensor_step__");
}

HeldStep hold(nb::handle object) {
    if (!offers_step(object))
        throw nb::type_error("a step is an object with a method __vtensor_step__");
    nb::object capsule = PyCapsule_CheckExact(object.ptr()) ? nb::borrow(object)
                                                            : object.attr("__vtensor_step__")();
    if (!PyCapsule_IsValid(capsule.ptr(), VTENSOR_STEP_CAPSULE))
        throw nb::type_error("a step comes as a PyCapsule named \"" VTENSOR_STEP_CAPSULE "\"");
    void *pointer = PyCapsule_GetPointer(capsule.ptr(), VTENSOR_STEP_CAPSULE);
    const auto &step = *static_cast<const vtensor_step *>(pointer);
    check_step(step);
    return {std::move(capsule), step};
}

void *queue_in(nb::handle object) {
    if (object.is_none()) return nullptr;
    if (!PyCapsule_IsValid(object.ptr(), VTENSOR_QUEUE_CAPSULE))
        throw nb::type_error("a queue comes as a PyCapsule named \"" VTENSOR_QUEUE_CAPSULE "\"");
    return PyCapsule_GetPointer(object.ptr(), VTENSOR_QUEUE_CAPSULE);
}

Buffers::~Buffers() {
    for (Py_buffer &view : views_) PyBuffer_Release(&view);
}

void Buffers::add(nb::handle object, bool writable, const std::string &label) {
    if (!PyObject_CheckBuffer(object.ptr()))
        throw nb::type_error(
            (label + ": " + nb::type_name(object.type()).c_str() + " has no buffer").c_str());
    Py_buffer view;
    // PyBUF_SIMPLE: plain bytes in C order. No format is asked for, since NumPy cannot state one
    // for the element types that it does not have itself (bf16).
    if (PyObject_GetBuffer(object.ptr(), &view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
        nb::python_error reason;
        throw nb::value_error((label + (writable ? " must be writable and" : " must be") +
                               " contiguous in C order: " + nb::str(reason.value()).c_str())
                                  .c_str());
    }
    views_.push_back(view);
    memory_.push_back({view.buf, static_cast<std::size_t>(view.len)});
}

Exponents exponents_in(const GivenExponents &given, std::size_t count) {
    if (!given.empty() && given.size() != count)
        throw nb::value_error(("there are " + std::to_string(given.size()) + " exponents for " +
                               std::to_string(count) + " buffers")
                                  .c_str());
    Exponents found;
    for (const auto &[bytes, bits] : given) {
        if (bytes > 8 || !std::has_single_bit(bytes))
            throw nb::value_error("elements have 1, 2, 4 or 8 bytes");
        if (bytes < 8 && bits >> (8 * bytes) != 0)
            throw nb::value_error("more bits than an element has bytes for");
        found.push_back({bytes, bits});
    }
    return found;
}

namespace {

bool finite_in(nb::sequence buffers, const GivenExponents &given) {
    const nb::tuple objects(buffers);  // a copy: another thread may change the caller's
    const Exponents exponents = exponents_in(given, objects.size());
    Buffers bound(objects.size());
    for (const nb::handle object : objects) bound.add(object, false, "a buffer");
    const Unlocked unlocked;
    for (std::size_t i = 0; i < exponents.size(); ++i)
        if (!all_finite(bound.memory()[i], exponents[i])) return false;
    return true;
}

bool clear_subnormals_in(nb::handle buffer) {
    Buffers bound(1);
    bound.add(buffer, true, "a buffer");
    const Unlocked unlocked;
    return clear_subnormals(bound.memory()[0]);
}

void execute(nb::handle object, nb::sequence slots, int threads, const Sizes &sizes,
             nb::object queue) {
    const HeldStep held = hold(object);
    void *const queued = queue_in(queue);
    if (threads != 0) check_threads(threads);
    // A copy: another thread may change the caller's sequence meanwhile.
    const nb::tuple given(slots);
    check_plane_count(held.step, given.size());
    const std::vector<Plane> planes = planes_of(held.step);
    Buffers buffers(given.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
        const bool writable = held.step.slots[planes[i].slot].access != VTENSOR_READ;
        buffers.add(given[i], writable, plane_label(held.step, planes[i]));
    }
    const Unlocked unlocked;
    run_once(held.step, {buffers.memory(), sizes, queued}, threads);
}

// Adds an exception type to the module; the translator keeps the returned reference forever.
PyObject *add_failure(nb::module_ &m, const char *name, const char *doc, nb::dict members) {
    const std::string full = nb::cast<std::string>(m.attr("__name__")) + "." + name;
    PyObject *type =
        PyErr_NewExceptionWithDoc(full.c_str(), doc, PyExc_RuntimeError, members.ptr());
    if (type == nullptr) throw nb::python_error();
    m.attr(name) = nb::borrow(type);
    return type;
}

void bind_failures(nb::module_ &m) {
    nb::dict members;
    members["index"] = -1;
    members["bad_input"] = false;
    nb::register_exception_translator(
        [](const std::exception_ptr &thrown, void *type) {
            try {
                std::rethrow_exception(thrown);
            } catch (const StepFailed &failure) {
                const std::string &message = failure.message;
                nb::object text = nb::steal(PyUnicode_DecodeUTF8(
                    message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
                nb::object error = nb::handle(static_cast<PyObject *>(type))(text);
                error.attr("index") = failure.index;
                error.attr("bad_input") = failure.bad_input;
                PyErr_SetObject(static_cast<PyObject *>(type), error.ptr());
            }
        },
        add_failure(m, "StepFailed", R"(A native step failed; the message is the step's own.

Attributes:
    index: the index of the step in its program.
    bad_input: whether the step reports wrong values in its input.)", members));
    nb::exception<Circular>(m, "Circular", PyExc_RuntimeError).attr("__doc__") =
        "A job cannot begin: the team's thread waits for the thread that asks for the job.";
    nb::exception<Stopped>(m, "Stopped", PyExc_RuntimeError).attr("__doc__") =
        "A run ended between two steps, or never began: its team or arena is closed.";
    nb::exception<NoThreads>(m, "NoThreads", PyExc_RuntimeError).attr("__doc__") =
        "The system does not let this process start the threads of a team.";
    nb::exception<Busy>(m, "Busy", PyExc_RuntimeError).attr("__doc__") =
        "A run cannot begin: another run is using its program or its arena.";
}

const char *access_name(std::uint32_t access) {
    switch (access) {
        case VTENSOR_READ: return "read";
        case VTENSOR_WRITE: return "write";
        case VTENSOR_SCRATCH: return "scratch";
        default: return "read write";
    }
}

nb::dict describe(nb::handle object) {
    const HeldStep held = hold(object);
    const vtensor_step &step = held.step;
    std::vector<nb::list> planes(step.slot_count);
    std::vector<std::size_t> total(step.slot_count);
    for (const Plane &plane : planes_of(step)) {
        planes[plane.slot].append(plane.bytes);
        total[plane.slot] += plane.bytes;
    }
    nb::list slots;
    std::uint32_t alignment = 1;
    for (std::size_t i = 0; i < step.slot_count; ++i) {
        const vtensor_slot &slot = step.slots[i];
        slots.append(nb::make_tuple(slot.name == nullptr ? "" : slot.name, total[i],
                                    access_name(slot.access)));
        alignment = std::max(alignment, slot.alignment);
    }
    nb::dict answer;
    answer["kernel"] = nb::str(step.kernel);
    answer["slots"] = slots;
    answer["planes"] = nb::cast(planes);
    answer["alignment"] = alignment;
    answer["sizes"] = step.size_count;
    answer["device"] = step.device == nullptr ? nb::none() : nb::object(nb::str(step.device));
    return answer;
}

void set_threads(int threads) {
    check_threads(threads);
    omp_set_num_threads(threads);
}

void load_ahead(const std::string &path) {
    // A thread that needs the library waits in dlopen, and reports if it cannot be loaded.
    try {
        std::thread([path] {
            const Unforked whole;
            dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        }).detach();
    } catch (const std::system_error &) {  // the import will load it
    }
}

Offsets offsets_of(const Sizes &bytes, const Sizes &first, const Sizes &last) {
    if (bytes.size() != first.size() || bytes.size() != last.size())
        throw nb::value_error("each piece has a size, a first and a last step");
    std::vector<Piece> pieces;
    pieces.reserve(bytes.size());
    std::int64_t total = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] < 0 || first[i] < 0 || first[i] > last[i])
            throw nb::value_error("a piece has less than no bytes, or steps that there are not");
        if (__builtin_add_overflow(total, bytes[i], &total))
            throw nb::value_error("the pieces have more bytes than there are addresses");
        pieces.push_back({bytes[i], first[i], last[i]});
    }
    return offsets(pieces);
}

}  // namespace

}  // namespace vtensor::replay

NB_MODULE(_replay, m) {
    using namespace vtensor::replay;
    // Teams live until the interpreter ends, and so do objects that their threads use.
    nb::set_leak_warnings(false);
    m.doc() = "Runs the steps of native/include/vtensor/step.h.";
    bind_failures(m);
    m.def("execute", &execute, "step"_a, "slots"_a, "threads"_a = 0, "sizes"_a = Sizes(),
          "queue"_a = nb::none(),
          nb::sig("def execute(step: object, slots: collections.abc.Sequence[object], "
                  "threads: int = 0, sizes: collections.abc.Sequence[int] = (), "
                  "queue: object | None = None) -> None"),
          R"(Run a step once.

``step`` has a method ``__vtensor_step__`` (or is the capsule that it returns); ``slots``
holds one object with a buffer for each plane of each slot, in order. ``threads`` is the
number of OpenMP threads for the step (0: the calling thread's number). ``sizes`` are the
sizes that the step takes, if any. ``queue`` is a capsule named "vtensor.queue", needed by a
step of a device; the caller then waits for the queue. The interpreter's lock is released
while the step runs.

Raises:
    TypeError: ``step`` is no step, an object has no buffer, or ``queue`` is no queue.
    ValueError: the step is of another ABI version or malformed; a buffer is missing, too
        small, not contiguous in C order, read-only where the step writes, misaligned, or is
        scratch that overlaps another; the step does not take ``sizes``, or needs a queue;
        ``threads`` is out of range (1 to 1024).
    StepFailed: the step failed.)");
    m.def("describe", &describe, "step"_a,
          nb::sig("def describe(step: object) -> dict[str, typing.Any]"),
          R"(Return the description of a step as a dict.

``kernel``: its name; ``slots``: for each slot (name, bytes of its planes together, access),
access being "read", "write", "read write" or "scratch"; ``planes``: for each slot the bytes
of each plane; ``alignment``: in bytes, enough for every address; ``sizes``: the number of
sizes that it takes; ``device``: the device whose queue it uses, or None for the CPU. Raises
as ``execute``.)");
    m.def("set_threads", &set_threads, "threads"_a,
          "Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.");
    m.def("threads", &omp_get_max_threads,
          "Return the number of OpenMP threads of the calling thread.");
    m.def("load_ahead", &load_ahead, "path"_a,
          R"(Begin to load a shared library on another thread, ahead of an import that needs it.

Failures are ignored: the import reports them.)");
    m.def("finite", &finite_in, "buffers"_a, "exponents"_a,
          nb::sig("def finite(buffers: collections.abc.Sequence[object], "
                  "exponents: collections.abc.Sequence[tuple[int, int]]) -> bool"),
          R"(Return whether all numbers in these buffers are finite.

``exponents``: for each buffer (bytes of an element: 1, 2, 4 or 8; the bits that are all
set in infinities and NaN), such as (4, 0x7f800000); a buffer whose bits are 0 counts as
finite. Without exponents the result is True.

Raises:
    TypeError: an object has no buffer.
    ValueError: a buffer is not contiguous; ``exponents`` is neither empty nor as long as
        ``buffers``; elements have another size.)");
    m.def("clear_subnormals", &clear_subnormals_in, "buffer"_a,
          nb::sig("def clear_subnormals(buffer: object) -> bool"),
          R"(Set the subnormal f32 numbers of a buffer to zero; return whether there were any.

Subnormal is a number below 2^-126. A sixteenth of the numbers is searched first: if none of
these is subnormal, nothing changes and the result is False.

Raises:
    TypeError: ``buffer`` has no buffer.
    ValueError: it is not contiguous, or read-only.)");
    m.def("offsets", &offsets_of, "nbytes"_a, "first"_a, "last"_a,
          nb::sig("def offsets(nbytes: collections.abc.Sequence[int], "
                  "first: collections.abc.Sequence[int], last: collections.abc.Sequence[int]) "
                  "-> tuple[list[int], int]"),
          R"(Return the byte offsets of pieces of memory in one arena, and the arena's bytes.

``nbytes``: the size of each piece; ``first``, ``last``: the indices of the first and the
last step that need it. Pieces that a step needs at the same time do not overlap. Each
piece, the largest first, is put into the smallest gap that holds it; if the arena is then
larger than the memory needed at one time, other orders are tried too.

Raises:
    ValueError: the three are not of one length, or a number is out of range.)");
    bind_aside(m);
    bind_program(m);
    bind_team(m);
    bind_request(m);
    bind_request_tree(m);
}
