// native/winograd/module.cpp: the kernels as Python sees them, at every level.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "convolution.h"
#include "depthwise.h"
#include "direct.h"
#include "eigen/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace vtensor::winograd {

namespace {

using eigen::Kernel;

void bind(nb::module_ &m) {
    m.attr("lanes") = lanes();
    m.def(
        "convolution",
        [](Index images, Index channels, Index outputs, Index groups, const Ints &src,
           const Ints &dst, const Ints &begin, const Ints &taps, const Ints &results, Index step,
           Index src_block, Index dst_block, bool bias, bool other, float low, float high) {
            return Kernel(convolution({images, channels, outputs, groups, src, dst, begin, taps,
                                       results, step, src_block, dst_block, bias, other, low,
                                       high}));
        },
        "images"_a, "channels"_a, "outputs"_a, "groups"_a, "src"_a, "dst"_a, "begin"_a, "taps"_a,
        "results"_a, "step"_a, "src_block"_a, "dst_block"_a, "bias"_a, "other"_a, "low"_a,
        "high"_a,
        R"(Make a kernel for a convolution of f32 in tiles.

Args:
    src, dst, begin, taps, results: sizes of src and dst, pads before the image, taps of the
        filter, and results of a tile: down, and across.
    step: the filter's stride, 1 or 2.
    src_block, dst_block: channels of a block after the spatial dims; 0: channels last.
    bias, other: whether a number per channel, and a tensor like dst, is added to results.
    low, high: bounds between which results are brought last.

Slots: src, weights, bias and other if any, dst, scratch if needed.

Weights are transformed, and laid out as products down, products across, panels of 32
outputs, channels, 32 outputs; with groups, as products down, products across, vectors of
outputs, the channels that each of their lanes sees, lanes. A filter of one element has
tiles of one result, and its weights are not transformed. With stride 2 the filter is
four filters (phases) of ``taps`` taps: in the weights, each channel stands for its
phases down, then across; and a ``src_block`` of 1 means one channel after another.)");
    m.def(
        "depthwise",
        [](Index images, Index channels, const Ints &src, const Ints &dst, const Ints &begin,
           const Ints &taps, const Ints &strides, Index src_block, Index dst_block, bool bias,
           bool other, float low, float high) {
            return Kernel(depthwise({images, channels, src, dst, begin, taps, strides, src_block,
                                     dst_block, bias, other, low, high}));
        },
        "images"_a, "channels"_a, "src"_a, "dst"_a, "begin"_a, "taps"_a, "strides"_a,
        "src_block"_a, "dst_block"_a, "bias"_a, "other"_a, "low"_a, "high"_a,
        R"(Make a kernel for a depthwise convolution of f32.

Slots and arguments as for convolution. Weights are laid out as vectors of channels,
taps down, taps across, channels of a vector.)");
    m.def(
        "direct",
        [](Index images, Index channels, Index outputs, const Ints &src, const Ints &dst,
           const Ints &begin, const Ints &taps, const Ints &strides, Index src_block,
           Index dst_block, bool bias, bool other, float low, float high) {
            return Kernel(direct({images, channels, outputs, src, dst, begin, taps, strides,
                                  src_block, dst_block, bias, other, low, high}));
        },
        "images"_a, "channels"_a, "outputs"_a, "src"_a, "dst"_a, "begin"_a, "taps"_a, "strides"_a,
        "src_block"_a, "dst_block"_a, "bias"_a, "other"_a, "low"_a, "high"_a,
        R"(Make a kernel for a convolution of f32 of few channels, one after another in src.

Slots and arguments as for convolution. Weights are laid out as vectors of outputs,
channels, taps down, taps across, outputs of a vector.)");
}

}  // namespace

}  // namespace vtensor::winograd

void vtensor::bind_kernels(nb::module_ &m) {
    m.doc() = "Convolutions by Winograd's algorithm, compiled for one instruction set.";
    eigen::bind_kernel(m);
    winograd::bind(m);
}
