// native/narrow/module.cpp: the kernels as Python sees them; one module per instruction set.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "blockwise.h"
#include "eigen/module.h"
#include "instructions.h"

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
        "block_product",
        [](Index rows, Index depth, Index outputs, Index bits, Index block, Index zero_bytes,
           bool bias, bool rounded) {
            return Kernel(
                block_product({{outputs, depth, bits, block, zero_bytes}, rows, bias, rounded}));
        },
        "rows"_a, "depth"_a, "outputs"_a, "bits"_a, "block"_a, "zero_bytes"_a, "bias"_a,
        "rounded"_a,
        R"(Make a kernel for f32 times weights of 2, 4 or 8 bits.

Args:
    rows, depth, outputs: rows of x, numbers of a row, and rows of the weights.
    bits, block: bits of a code, and codes that have one scale, a power of two from 16 on.
    zero_bytes: 1 if zeros are u8, 4 if they are f32, 0 if there are none and zero is in the
        middle of the codes.
    bias: whether a number per output is added to results.
    rounded: whether x is first rounded to 8 bits, by a scale for each row and block.

Slots: x, weights, scales, zeros and bias if any, dst, scratch if needed. An output has
whole blocks of codes, the first in the lowest bits of a byte, and a scale and a zero for
each block.)");
    m.def(
        "block_rows",
        [](Index depth, Index outputs, Index bits, Index block, Index zero_bytes, Index count,
           Index lines, Index index_bytes, bool checked) {
            return Kernel(block_rows(
                {{outputs, depth, bits, block, zero_bytes}, count, lines, index_bytes, checked}));
        },
        "depth"_a, "outputs"_a, "bits"_a, "block"_a, "zero_bytes"_a, "count"_a, "lines"_a,
        "index_bytes"_a, "checked"_a,
        R"(Make a kernel for the numbers that rows of weights of 2, 4 or 8 bits stand for.

Args:
    depth, outputs, bits, block, zero_bytes: as for block_product.
    count, lines: number of indices, and of outputs that each stands for.
    index_bytes: 4 if indices are s32, 8 if they are s64, 0 if there are none: then all
        outputs are made.
    checked: whether an index outside fails the run; else it makes zeros.

Slots: weights, scales, zeros and indices if any, dst.)");
}

}  // namespace

}  // namespace vtensor::narrow

NB_MODULE(VTENSOR_NARROW_MODULE, m) {
    // Plans in Python hold kernels to the end of the process.
    nb::set_leak_warnings(false);
    m.doc() = "Products of narrow integers, compiled for one instruction set.";
    vtensor::narrow::bind(m);
}
