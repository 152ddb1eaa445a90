// native/narrow/module.cpp: the kernels as Python sees them; one module per instruction set.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "eigen/module.h"
#include "sums.h"
#include "recurrent.h"

namespace nb = nanobind;
using namespace nanobind::literals;

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
    m.def(
        "dynamic_lstm",
        [](const std::string &instructions, const eigen::NetworkRow &row,
           const std::vector<std::string> &given, eigen::Index length_bytes) {
            const eigen::Network network = eigen::network_of(row);
            return Kernel(dynamic_lstm(network, given, length_bytes, instructions));
        },
        "instructions"_a, "network"_a, "given"_a, "length_bytes"_a,
        R"(Make a kernel for an LSTM that quantizes x and the state, with weights of bytes.

Args:
    instructions: one of ``instructions()``.
    network, given, length_bytes: as for eigen's kernel ``recurrent``; the cell is "lstm".

Slots: x (T N F); w (dir gate unit F) and r (dir gate unit state), s8, as dir gate unit/16
F/4 unit%16 F%4, and so with state; scales of w and r, then zero points of w and r, s8 (dir
gate unit); the optional inputs, y (T dir N unit), the last hidden state and cell state,
scratch.)");
}

}  // namespace

}  // namespace vtensor::narrow

NB_MODULE(VTENSOR_NARROW_MODULE, m) {
    // Plans in Python hold kernels to the end of the process.
    nb::set_leak_warnings(false);
    m.doc() = "Products of narrow integers, compiled for one instruction set.";
    vtensor::narrow::bind(m);
}
