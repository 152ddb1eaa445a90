// native/narrow/module.cpp: the kernels as Python sees them, at every level.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "blockwise.h"
#include "eigen/module.h"
#include "kernels.h"
#include "recurrent.h"
#include "sums.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace vtensor::narrow {

namespace {

using eigen::Kernel;

void bind(nb::module_ &m) {
    m.def("instructions", &instructions,
          R"(Return the kinds of instructions that products can use in this module on this machine.

The slowest is first. Each is one of "plain", "avx2", "avx_vnni", "avx512", "vnni" and
"amx"; all give equal results.)");
    m.def(
        "product",
        [](const std::string &instructions, const Ints &batch, const Ints &left_steps,
           const Ints &right_steps, Index rows, Index columns, Index depth,
           const std::string &left_type, const std::string &right_type, const std::string &right,
           Index left_zeros, Index right_zeros, const std::vector<Stage> &stages,
           const std::string &to, float low, float high) {
            return Kernel(product({instructions, batch, left_steps, right_steps, rows, columns,
                                   depth, left_type, right_type, right, left_zeros, right_zeros,
                                   {stages, to, low, high}}));
        },
        "instructions"_a, "batch"_a, "left_steps"_a, "right_steps"_a, "rows"_a, "columns"_a,
        "depth"_a, "left_type"_a, "right_type"_a, "right"_a, "left_zeros"_a, "right_zeros"_a,
        "stages"_a, "to"_a, "low"_a, "high"_a,
        R"(Make a kernel for products of matrices of bytes, one for each index of a batch.

Args:
    instructions: one of ``instructions()``.
    batch, left_steps, right_steps: the batch's sizes, and steps along them in matrices.
    rows, columns, depth: sizes of a matrix of results; number of products in a sum.
    left_type, right_type: u8 or s8. Rows of left are dense.
    right: "rows" or "columns" if those are dense, or "panels". These are panels of 16
        columns, groups of 4 rows, 16 columns, 4 rows, as signed bytes; u8 is stored minus
        128.
    left_zeros, right_zeros: elements of the zero points: 0 if there is none, 1, or one
        for each row of all left, or column of all right matrices.
    stages: what follows the sums, in the order of this list, as (name, element type, number
        of elements) of an operand with one element or one for each column: "sum" is added
        as s32; "scale" multiplies the sum as f32; "code" is added to the rounded product,
        which becomes a byte, from which "decode_zero" is subtracted before "decode_scale"
        multiplies; "bias" is added; "other", like dst, is added, bytes minus "other_zero"
        times "other_scale"; "step" divides; "zero" is added to the rounded quotient.
    to: the element type of dst: s32 of sums, f32 or bytes of scaled sums.
    low, high: bounds between which scaled sums are brought before "step".

Slots: left, right, zero points if any, operands of stages, dst, scratch if needed.)");
    const auto sliding = [&m](const char *name, Step *(*make)(const Convolution &),
                              const char *says) {
        m.def(
            name,
            [make](const std::string &instructions, Index images, Index channels, Index outputs,
                   Index groups, const Ints &src, const Ints &dst, const Ints &taps,
                   const Ints &strides, const Ints &dilations, const Ints &begin,
                   const std::string &src_type, const std::string &weights_type,
                   const std::string &weights, Index src_zeros, Index weights_zeros,
                   const std::vector<Stage> &stages, const std::string &to, float low,
                   float high) {
                return Kernel(make({instructions, images, channels, outputs, groups, src, dst,
                                    taps, strides, dilations, begin, src_type, weights_type,
                                    weights, src_zeros, weights_zeros, {stages, to, low, high}}));
            },
            "instructions"_a, "images"_a, "channels"_a, "outputs"_a, "groups"_a, "src"_a, "dst"_a,
            "taps"_a, "strides"_a, "dilations"_a, "begin"_a, "src_type"_a, "weights_type"_a,
            "weights"_a, "src_zeros"_a, "weights_zeros"_a, "stages"_a, "to"_a, "low"_a, "high"_a,
            says);
    };
    sliding("convolution", &convolution,
            R"(Make a kernel for a convolution of bytes over three spatial dims, channels last.

Args:
    src, dst, taps, strides, dilations, begin: a number for each spatial dim; begin are
        the pads before the image, which stand for src's zero point.
    weights: "panels" for each group, whose rows are taps, each with a group's channels
        padded to a multiple of 4; or "plain": groups, outputs, taps, channels.
    weights_zeros: 0, 1, or the number of outputs.

Other arguments and slots as for product, with src as left and weights as right.)");
    sliding("depthwise", &depthwise,
            R"(Make a kernel for a convolution of bytes with one output for each channel.

Arguments and slots as for convolution. Weights are taps, then channels, as they are.)");
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

void vtensor::bind_kernels(nb::module_ &m) {
    m.doc() = "Products of narrow integers, compiled for one instruction set.";
    eigen::bind_kernel(m);
    narrow::bind(m);
}
