// native/narrow/module.cpp: the kernels as Python sees them; one module per instruction set.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "eigen/module.h"
#include "instructions.h"

namespace nb = nanobind;

namespace vtensor::narrow {

namespace {

using eigen::Kernel;

void bind(nb::module_ &m) {
    m.attr("level") = VTENSOR_LEVEL;
    m.def("machine_level", &eigen::machine_level,
          R"(Return the best instruction set, of those with a module, that this machine runs.

One of "baseline", "avx2" and "avx512".)");
    m.def("instructions", &instructions,
          R"(Return the kinds of instructions that products can use in this module on this machine.

The slowest is first. Each is one of "plain", "avx2", "avx512", "vnni" and "amx"; all give equal
results.)");
    nb::class_<Kernel>(m, "Kernel", nb::is_final(), "A kernel, which supplies itself as a step.")
        .def_prop_ro("kernel", &Kernel::name)
        .def_prop_ro("scratch_bytes", &Kernel::scratch_bytes,
                     "Bytes of scratch memory, the step's last slot; 0 if it needs none.")
        .def("__vtensor_step__", &Kernel::capsule,
             "Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it.")
        .def("__repr__", [](const Kernel &kernel) { return "Kernel(" + kernel.name() + ")"; });
}

}  // namespace

}  // namespace vtensor::narrow

NB_MODULE(VTENSOR_NARROW_MODULE, m) {
    // Plans in Python hold kernels to the end of the process.
    nb::set_leak_warnings(false);
    m.doc() = "Products of narrow integers, compiled for one instruction set.";
    vtensor::narrow::bind(m);
}
