// native/replay/module_program.cpp: Arena and Program as Python sees them.
#include "module_program.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>

using namespace nb::literals;

namespace vtensor::replay {

namespace {

constexpr auto region_label = [](std::size_t index) { return "region " + std::to_string(index); };

nb::object view(const Arena &arena) {
    using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;
    auto held = std::make_unique<std::shared_ptr<const Pages>>(arena.pages());
    const Memory memory = (*held)->memory();
    const nb::capsule owner(held.get(), [](void *pages) noexcept {
        delete static_cast<std::shared_ptr<const Pages> *>(pages);
    });
    held.release();
    return nb::cast(Bytes(memory.address, {memory.bytes}, owner));
}

int traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    return nb::inst_ptr<PyProgram>(self)->traverse(visit, arg);
}

int clear(PyObject *self) {
    if (nb::inst_ready(self)) nb::inst_ptr<PyProgram>(self)->clear();
    return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void *>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(&clear)},
    {0, nullptr},
};

}  // namespace

PyProgram::PyProgram(const std::vector<nb::object> &regions, const Steps &steps,
                     std::size_t size_count, const StepSizes &step_sizes, bool repeatable)
    : constants_(regions.size()),
      program_(sources(regions), recorded(steps, step_sizes), size_count, repeatable) {}

std::vector<Source> PyProgram::sources(const std::vector<nb::object> &regions) {
    std::vector<Source> found;
    for (std::size_t i = 0; i < regions.size(); ++i) {
        if (nb::isinstance<Arena>(regions[i])) {
            found.emplace_back(nb::cast<std::shared_ptr<Arena>>(regions[i]));
        } else if (nb::isinstance<nb::int_>(regions[i])) {
            std::size_t bytes = 0;
            if (!nb::try_cast(regions[i], bytes))
                throw nb::value_error((region_label(i) + " has no number of bytes").c_str());
            found.emplace_back(bytes);
        } else {
            constants_.add(regions[i], false, region_label(i));
            found.emplace_back(constants_.memory().back());
        }
    }
    return found;
}

std::vector<RecordedStep> PyProgram::recorded(const Steps &steps, const StepSizes &step_sizes) {
    std::vector<RecordedStep> found;
    for (const auto &[object, slots] : steps) {
        RecordedStep &step = found.emplace_back();
        for (const auto &[region, offset] : slots) step.places.push_back({region, offset});
        if (offers_step(object) || !PyCallable_Check(object.ptr())) {
            step.action = own(hold(object).step);
            continue;
        }
        step.action = [this, index = callables_.size()] {
            const Locked locked;
            callables_[index]();
        };
        callables_.push_back(object);
    }
    for (const auto &[step, sizes] : step_sizes) {
        if (step >= found.size())
            throw nb::value_error(("sizes are for step " + std::to_string(step) + ", of " +
                                   std::to_string(found.size()))
                                      .c_str());
        found[step].sizes = sizes;
    }
    return found;
}

int PyProgram::traverse(visitproc visit, void *arg) const {
    for (const nb::object &callable : callables_) Py_VISIT(callable.ptr());
    for (const Py_buffer &view : constants_.views()) Py_VISIT(view.obj);
    return 0;
}

// Breaks every reference cycle: constants are plain memory.
void PyProgram::clear() {
    for (nb::object &callable : callables_) callable = nb::none();
}

Bindings::Bindings(const Program &program, nb::sequence buffers, nb::handle times)
    : program_(program) {
    const nb::tuple given(buffers);  // a copy: another thread may change the caller's
    const std::vector<std::size_t> &bound = program.bound();
    for (std::size_t i = 0; i < given.size(); ++i) {
        const bool writable = i < bound.size() && program.is_written(bound[i]);
        buffers_.add(given[i], writable, i < bound.size() ? region_label(bound[i]) : "a binding");
    }
    if (times.is_none()) return;
    clock_.add(times, true, "times");
    const Memory memory = clock_.memory().front();
    if (memory.bytes != 2 * sizeof(std::int64_t) * program.step_count())
        throw nb::value_error(("times has " + std::to_string(memory.bytes) +
                               " bytes, not two int64 for each of " +
                               std::to_string(program.step_count()) + " steps")
                                  .c_str());
    if (reinterpret_cast<std::uintptr_t>(memory.address) % alignof(std::int64_t) != 0)
        throw nb::value_error("times must start at a multiple of 8 bytes");
    times_ = static_cast<std::int64_t *>(memory.address);
}

bool Bindings::all_finite(const Exponents &exponents, bool written) const {
    const std::vector<std::size_t> &bound = program_.bound();
    for (std::size_t i = 0; i < std::min(bound.size(), exponents.size()); ++i)
        if (program_.is_written(bound[i]) == written &&
            !replay::all_finite(memory()[i], exponents[i]))
            return false;
    return true;
}

void bind_program(nb::module_ &m) {
    nb::class_<Arena>(m, "Arena", nb::is_final(),
                      R"(Memory that programs share, for one run at a time.

Zeroed pages from the system, aligned to 2 MiB, huge pages if there are any; pages that
are never touched take no memory.

Raises:
    MemoryError: there is not enough memory.)")
        .def(nb::init<std::size_t>(), "nbytes"_a = 0)
        .def_prop_ro("nbytes", &Arena::bytes, "The present size in bytes.")
        .def("grow", &Arena::grow, "nbytes"_a,
             R"(Grow to at least ``nbytes``; if the size changes, the content is undefined.

Old pages are reused, unless an array of ``memory`` or a run still needs them.)")
        .def(
            "bring",
            [](const Arena &arena, std::size_t begin, std::size_t bytes) {
                arena.pages()->bring(begin, bytes);
            },
            "begin"_a, "nbytes"_a, nb::call_guard<Unlocked>(),
            R"(Make the system provide the pages of ``nbytes`` bytes from ``begin`` on now.

If it cannot, it provides each page at the first access, which waits for that. Runs may use
the arena meanwhile.)")
        .def(
            "leave",
            [](const Arena &arena, std::size_t begin) { arena.pages()->leave(begin); }, "begin"_a,
            "Give the pages from byte ``begin`` on back to the system; their content is lost.")
        .def("close", &Arena::close,
             "Refuse further runs, which raise Stopped; a run in progress continues.")
        .def("memory", &view, nb::sig("def memory(self) -> numpy.typing.NDArray[numpy.uint8]"),
             "Return the present bytes as an array, which keeps them alive.");

    nb::class_<PyProgram>(m, "Program", nb::is_final(), nb::type_slots(slots),
                          R"(Recorded steps, run one after the other without Python.

Args:
    regions: the memory of slots. An object with a buffer is a constant, which is kept
        alive; an Arena stands for the pages that it has when a run starts, at least as
        many as now; a number is the size in bytes of memory that each run binds.
    steps: pairs of a native step and a (region, byte offset) for each plane of each slot;
        or of a callable, which is called with the interpreter's lock, and an empty list.
        Offsets hold for the largest sizes; bound memory may be as small as a run's sizes
        need.
    size_count: the number of sizes of each run.
    step_sizes: from the index of a step that takes sizes to their indices among the
        run's.
    repeatable: no step changes memory that it reads, except memory that the steps have
        written. Floating-point flags that steps leave unchecked (``doubt`` in step.h) are
        then checked once, at the end, and a run that raised one is repeated with steps
        that check themselves. A program that calls Python, or uses a device's queue, is
        never repeated.

Raises:
    TypeError: a step is neither a step nor a callable, or a region has no buffer.
    ValueError: a step is malformed, or a slot is outside of its region or misaligned in it,
        writes a constant, or is scratch that overlaps another slot; a step takes another
        number of sizes, or a size that no run is given; steps are for several devices.)")
        .def(nb::init<const std::vector<nb::object> &, const PyProgram::Steps &, std::size_t,
                      const PyProgram::StepSizes &, bool>(),
             "regions"_a, "steps"_a, "size_count"_a = 0, "step_sizes"_a = PyProgram::StepSizes(),
             "repeatable"_a = false,
             nb::sig("def __init__(self, regions: collections.abc.Sequence[object], "
                     "steps: collections.abc.Sequence[tuple[object, "
                     "collections.abc.Sequence[tuple[int, int]]]], size_count: int = 0, "
                     "step_sizes: collections.abc.Mapping[int, collections.abc.Sequence[int]] "
                     "= {}, repeatable: bool = False) -> None"))
        .def("__len__", [](PyProgram &program) { return program.program().step_count(); },
             "Return the number of steps.");

    static vtensor_step nothing{};
    nothing.abi = VTENSOR_STEP_ABI;
    nothing.struct_bytes = sizeof nothing;
    nothing.kernel = "nothing";
    nothing.run = [](void *, void *const *, const vtensor_run *) { return 0; };
    m.def("empty_step", [] { return nb::capsule(&nothing, VTENSOR_STEP_CAPSULE); },
          nb::sig("def empty_step() -> object"),
          "Return a native step that does nothing, to measure the overhead of a step.");
}

}  // namespace vtensor::replay
