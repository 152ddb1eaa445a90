// native/eigen/module.h: helpers shared by the files that bind kernels to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "recurrent.h"
#include "step.h"

namespace vtensor::eigen {

// Returns the best instruction set, of those with a module, that this machine runs.
inline const char *machine_level() {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("f16c")) return "baseline";
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}

// An owner of a step.
class Kernel {
public:
    explicit Kernel(Step *step) : step_(step) {}
    Kernel(Kernel &&other) noexcept : step_(std::exchange(other.step_, nullptr)) {}
    Kernel(const Kernel &) = delete;
    Kernel &operator=(const Kernel &) = delete;
    ~Kernel() {
        if (step_ != nullptr) step_->release();
    }

    const std::string &name() const { return step_->kernel(); }
    std::size_t scratch_bytes() const { return step_->scratch_bytes(); }

    nanobind::object capsule() const {
        const vtensor_step *step = step_->step();
        const auto release = [](PyObject *capsule) {
            void *held = PyCapsule_GetPointer(capsule, VTENSOR_STEP_CAPSULE);
            const auto *owned = static_cast<const vtensor_step *>(held);
            owned->release(owned->context);
        };
        PyObject *made =
            PyCapsule_New(const_cast<vtensor_step *>(step), VTENSOR_STEP_CAPSULE, release);
        if (made == nullptr) throw nanobind::python_error();
        step->retain(step->context);
        return nanobind::steal(made);
    }

private:
    Step *step_;
};

// Makes structs from tuples of their members.
template <class To, class From>
std::vector<To> rows(const std::vector<From> &given) {
    std::vector<To> made;
    for (const From &row : given) made.push_back(std::make_from_tuple<To>(row));
    return made;
}

// A recurrent network as Python says it.
using NetworkRow = std::tuple<std::string, std::string, Index, Index, Index, Index,
                              std::vector<std::tuple<std::string, float, float>>, float, bool, bool>;

inline Network network_of(const NetworkRow &row) {
    const auto &[cell, direction, times, batch, features, units, activations, clip, limited,
                 coupled] = row;
    return {cell,  direction, times,   batch,  features, units,
            rows<Activation>(activations), clip, limited, coupled};
}

// Adds the kernels of moves.h.
void bind_moves(nanobind::module_ &m);

// Adds what each library's module has: the class of its kernels, and the machine's level.
inline void bind_kernel(nanobind::module_ &m) {
    m.def("machine_level", &machine_level,
          R"(Return the best instruction set, of those with a module, that this machine runs.

One of "baseline", "avx2" and "avx512".)");
    nanobind::class_<Kernel>(m, "Kernel", nanobind::is_final(),
                             "A kernel, which supplies itself as a step.")
        .def_prop_ro("kernel", &Kernel::name)
        .def_prop_ro("scratch_bytes", &Kernel::scratch_bytes,
                     "Bytes of scratch memory, the step's last slot; 0 if it needs none.")
        .def("__vtensor_step__", &Kernel::capsule,
             "Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it.")
        .def("__repr__", [](const Kernel &kernel) { return "Kernel(" + kernel.name() + ")"; });
}

}  // namespace vtensor::eigen

namespace vtensor {

// Adds a library's kernels to a module. Each of eigen/, winograd/ and narrow/ defines it once;
// it is compiled without the instructions of a level and is linked to the modules of all levels.
void bind_kernels(nanobind::module_ &m);

}  // namespace vtensor
