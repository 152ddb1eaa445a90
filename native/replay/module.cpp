// native/replay/module.cpp: the step runner as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runner.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace vtensor::replay {
namespace {

// A step together with the capsule that keeps it alive.
struct HeldStep {
    nb::object capsule;
    const vtensor_step &step;
};

HeldStep hold(nb::handle object) {
    nb::object capsule;
    if (PyCapsule_CheckExact(object.ptr())) {
        capsule = nb::borrow(object);
    } else {
        nb::object method = nb::getattr(object, "__vtensor_step__", nb::none());
        if (method.is_none())
            throw nb::type_error("a step is an object with a method __vtensor_step__");
        capsule = method();
    }
    if (!PyCapsule_IsValid(capsule.ptr(), VTENSOR_STEP_CAPSULE))
        throw nb::type_error("a step comes as a PyCapsule named \"" VTENSOR_STEP_CAPSULE "\"");
    void *pointer = PyCapsule_GetPointer(capsule.ptr(), VTENSOR_STEP_CAPSULE);
    const auto &step = *static_cast<const vtensor_step *>(pointer);
    check_step(step);
    return {std::move(capsule), step};
}

// The buffers of one run; a buffer neither moves nor shrinks while it is in here.
class Buffers {
public:
    explicit Buffers(std::size_t expected) { views_.reserve(expected); }
    ~Buffers() {
        for (Py_buffer &view : views_) PyBuffer_Release(&view);
    }
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;

    void add(nb::handle object, bool writable, const std::string &label) {
        if (!PyObject_CheckBuffer(object.ptr()))
            throw nb::type_error((label + ": " + nb::type_name(object.type()).c_str() +
                                  " has no buffer").c_str());
        Py_buffer view;
        // PyBUF_SIMPLE: plain bytes in C order. No format is asked for, since NumPy cannot state
        // one for the element types that it does not have itself (bf16).
        const int wanted = writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        if (PyObject_GetBuffer(object.ptr(), &view, wanted) != 0) {
            nb::python_error reason;
            throw nb::value_error((label + (writable ? " must be writable and" : " must be") +
                                   " contiguous in C order: " + nb::str(reason.value()).c_str())
                                      .c_str());
        }
        views_.push_back(view);
        memory_.push_back({view.buf, static_cast<std::size_t>(view.len)});
    }

    std::span<const Memory> memory() const { return memory_; }

private:
    std::vector<Py_buffer> views_;
    std::vector<Memory> memory_;
};

void execute(nb::handle object, nb::sequence slots, int threads) {
    const HeldStep held = hold(object);
    if (threads != 0) check_threads(threads);
    // A tuple of its own: another thread may change the caller's sequence meanwhile.
    const nb::tuple given(slots);
    const std::size_t count = given.size();
    if (count != held.step.slot_count)
        throw nb::value_error(("the step has " + std::to_string(held.step.slot_count) + " slots, " +
                               std::to_string(count) + " buffers were given").c_str());
    Buffers buffers(count);
    for (std::size_t i = 0; i < held.step.slot_count; ++i) {
        const bool writable = held.step.slots[i].access != VTENSOR_READ;
        buffers.add(given[i], writable, slot_label(held.step, i));
    }
    check_memory(held.step, buffers.memory());
    try {
        const nb::gil_scoped_release unlocked;
        run_step(held.step, buffers.memory(), threads);
    } catch (const StepFailed &failure) {
        throw std::runtime_error(failure.message);
    }
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
    nb::list slots;
    std::uint32_t alignment = 1;
    for (std::size_t i = 0; i < held.step.slot_count; ++i) {
        const vtensor_slot &slot = held.step.slots[i];
        slots.append(nb::make_tuple(slot.name == nullptr ? "" : slot.name, slot.bytes,
                                    access_name(slot.access)));
        alignment = std::max(alignment, slot.alignment);
    }
    nb::dict answer;
    answer["kernel"] = nb::str(held.step.kernel);
    answer["slots"] = slots;
    answer["alignment"] = alignment;
    return answer;
}

void set_threads(int threads) {
    check_threads(threads);
    omp_set_num_threads(threads);
}

}  // namespace
}  // namespace vtensor::replay

NB_MODULE(_replay, m) {
    using namespace vtensor::replay;
    m.doc() = "Runs the steps of native/include/vtensor/step.h.";
    m.def("execute", &execute, "step"_a, "slots"_a, "threads"_a = 0,
          nb::sig("def execute(step: object, slots: collections.abc.Sequence[object], "
                  "threads: int = 0) -> None"),
          R"(Run a step once.

``step`` has a method ``__vtensor_step__`` (or is the capsule that it returns); ``slots``
holds one object with a buffer for each slot, in order. ``threads`` is the number of OpenMP
threads that the step finds (0: what this thread has). The interpreter's lock is released
meanwhile.

Raises:
    TypeError: not a step, or not a buffer.
    ValueError: the step is of another ABI version or malformed; a buffer is missing, too
        small, not contiguous in C order, read-only where the step writes, misaligned, or is
        scratch that overlaps another; ``threads`` is out of range (1 to 1024).
    RuntimeError: the step failed; its own reason.)");
    m.def("describe", &describe, "step"_a,
          nb::sig("def describe(step: object) -> dict[str, typing.Any]"),
          R"(What a step says of itself.

``kernel``: its name; ``slots``: (name, bytes, access) each, access being "read", "write",
"read write" or "scratch"; ``alignment``: in bytes, enough for every slot's address. Raises as
``execute``.)");
    m.def("set_threads", &set_threads, "threads"_a,
          "Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.");
    m.def("threads", &omp_get_max_threads, "The number of OpenMP threads of the calling thread.");
}
