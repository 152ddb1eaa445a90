// native/eigen/module.cpp: the kernels as Python sees them, at every level.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include <Eigen/Core>

#include "joined.h"
#include "kernels.h"
#include "module.h"
#include "recurrent.h"
#include "signals.h"
#include "trees.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace vtensor::eigen {

namespace {

using BendsRow = std::tuple<Index, Index, Index, Index, bool>;
using BoxRow = std::tuple<Index, Ints, Index, Ints, Index, Ints, std::uint64_t>;
using ConstantRow = std::tuple<std::string, std::variant<Index, double>>;
using ClassesRow = std::tuple<Index, bool, bool, bool>;
using ForestRow = std::tuple<Index, Index, Index, Index, Index, Index, std::string, bool>;
using FramesRow =
    std::tuple<Index, Index, Index, Index, Index, Index, Index, Index, Index, bool, bool, bool>;
using InstructionRow = std::tuple<std::string, Ints>;
using MaskRow = std::tuple<Ints, bool>;
using SizesRow = std::tuple<Index, Index, Index, Index>;
using WindowRow = std::tuple<Index, Index, Ints, Ints, Ints, Ints, Ints, Ints>;

Window window(const WindowRow &row) { return std::make_from_tuple<Window>(row); }

void bind_trees(nb::module_ &m) {
    m.def(
        "forest",
        [](const std::string &dtype, const std::string &to, const ForestRow &row) {
            return Kernel(forest(dtype, to, std::make_from_tuple<Forest>(row)));
        },
        "dtype"_a, "to"_a, "forest"_a,
        R"(Make a kernel that aggregates the votes of decision trees per target.

Args:
    dtype, to: the element types of x and of dst.
    forest: (rows, features, trees, nodes, votes, targets, aggregate, plain). aggregate:
        "SUM", "AVERAGE", "MIN" or "MAX"; plain: each node compares by <=, and NaN goes to
        its second child.

A node has the words 16 * feature + 2 * mode + 1 if NaN goes to the first child; first and
second child, which come after it; threshold. A leaf has -1, its first vote, the number of
its votes, 0.

Slots: x, nodes (s32), roots, targets, weights, base, dst.)");
    m.def(
        "tree_classifier",
        [](const std::string &dtype, const ForestRow &row, const ClassesRow &classes) {
            return Kernel(tree_classifier(dtype, std::make_from_tuple<Forest>(row),
                                          std::make_from_tuple<Classes>(classes)));
        },
        "dtype"_a, "forest"_a, "classes"_a,
        R"(Make a kernel for a classifier that consists of decision trees.

Args:
    dtype: the element type of x.
    forest: as for forest; its targets are the classes.
    classes: (bases, binary, positive, complement). bases: the number of base scores;
        binary: all votes are for one of two classes; positive: no vote is negative;
        complement: if the second class has no votes, the first one's score is 1 - s, not
        -s.

Slots: x, nodes (s32), roots, targets, weights, base, labels (s64; of the classes, then the
negative and the positive label unless binary), label, scores (f32).)");
    m.def(
        "lookup",
        [](const std::string &dtype, Index item_bytes, Index elements, Index keys) {
            return Kernel(lookup(dtype, item_bytes, elements, keys));
        },
        "dtype"_a, "item_bytes"_a, "elements"_a, "keys"_a,
        R"(Make a kernel that replaces each element by the value of its key.

Args:
    dtype: the element type of src and keys.
    item_bytes: bytes of an element of values and dst.
    elements, keys: how many there are.

Slots: src, keys (ascending, NaN last), values (one more: that of all others), dst.)");
    m.def(
        "pair_probabilities",
        [](Index rows, Index classes) { return Kernel(pair_probabilities(rows, classes)); },
        "rows"_a, "classes"_a,
        R"(Make a kernel for probabilities of classes from those of pairs of classes, in f32.

Slots: src (rows, pairs; of the first class of each), dst (rows, classes).)");
}

void bind_signals(nb::module_ &m) {
    m.def(
        "col2im",
        [](const std::string &dtype, const WindowRow &row) {
            return Kernel(col2im(dtype, window(row)));
        },
        "dtype"_a, "window"_a,
        R"(Make a kernel that adds windows up, each at its position in an image.

``window``: as for convolution; its src are the sizes of the image, its channels are 1.
Slots: src (images, elements of a window, windows), dst.)");
    m.def(
        "deformed",
        [](const WindowRow &row, const BendsRow &bends) {
            return Kernel(deformed(window(row), std::make_from_tuple<Bends>(bends)));
        },
        "window"_a, "bends"_a,
        R"(Make a kernel for a convolution of f32 that reads src at shifted positions.

Args:
    window: as for convolution.
    bends: (groups, parts, outputs, rank, masked): the numbers of groups of channels, of
        groups of channels that share offsets, of channels of dst and of spatial dims;
        whether there is a mask.

Slots: src (N C D H W), weights (O I d h w), offset (N parts d h w rank D H W, the latter of
dst), mask (N parts d h w D H W) if masked, dst, scratch.)");
    m.def(
        "fourier",
        [](const std::string &dtype, const FramesRow &row) {
            return Kernel(fourier(dtype, std::make_from_tuple<Frames>(row)));
        },
        "dtype"_a, "frames"_a,
        R"(Make a kernel for discrete Fourier transforms of frames.

Args:
    dtype: the element type.
    frames: (series, size, src_parts, frames, distance, taken, length, bins, dst_parts,
        inverse, mirrored, windowed). src holds ``series`` series of ``size`` numbers of
        ``src_parts`` parts (1: real, 2: complex). A series has ``frames`` frames, which
        begin ``distance`` numbers apart. A transform takes ``taken`` numbers of a frame,
        times the window if windowed, then zeros up to ``length``; if mirrored, the
        conjugates in reverse order as the second half. dst gets its first ``bins``
        results, of ``dst_parts`` parts.

Slots: src, window if windowed, dst, scratch.)");
    m.def(
        "determinant",
        [](const std::string &dtype, Index matrices, Index order) {
            return Kernel(determinant(dtype, matrices, order));
        },
        "dtype"_a, "matrices"_a, "rows"_a,
        R"(Make a kernel for determinants of ``matrices`` square matrices of ``rows`` rows.

Slots: src, dst, scratch.)");
    m.def(
        "recurrent",
        [](const NetworkRow &row, const std::vector<std::string> &given, Index length_bytes) {
            return Kernel(recurrent(network_of(row), given, length_bytes));
        },
        "network"_a, "given"_a, "length_bytes"_a,
        R"(Make a kernel for a layer of a recurrent network of f32.

Args:
    network: (cell, direction, times, batch, features, units, activations, clip, limited,
        coupled). Cell: "rnn", "gru", "lbr_gru" or "lstm"; direction: "forward", "reverse"
        or "bidirectional"; activations: (name, alpha, beta) for the gates of each
        direction; limited: whether their inputs are cut to -clip .. clip; coupled:
        whether an LSTM's input and forget gates are coupled.
    given: the names of optional inputs, in order: "bias", "lengths", "hidden", "cell" or
        "peepholes".
    length_bytes: bytes of an element of lengths, 4 or 8.

Slots: x (T N F), w (dir gate unit F), r (dir gate unit state), the optional inputs, y (T
dir N unit), the last hidden state, an LSTM's last cell state, scratch.)");
}

void bind(nb::module_ &m) {
    m.attr("version") = std::to_string(EIGEN_WORLD_VERSION) + "." +
                        std::to_string(EIGEN_MAJOR_VERSION) + "." +
                        std::to_string(EIGEN_MINOR_VERSION);
    bind_moves(m);
    bind_signals(m);
    bind_trees(m);
    m.def(
        "pointwise",
        [](const Ints &shape, const std::vector<Ints> &strides,
           const std::vector<std::string> &types, const std::vector<ConstantRow> &constants,
           const std::vector<InstructionRow> &program, const std::vector<BoxRow> &pads) {
            return Kernel(pointwise(shape, strides, types, rows<Constant>(constants),
                                    rows<Instruction>(program), rows<Box>(pads)));
        },
        "shape"_a, "strides"_a, "types"_a, "constants"_a, "program"_a, "pads"_a,
        R"(Make a kernel that runs an element-wise program. Slots: the operands, dst (dense).

Args:
    strides: of each operand along ``shape``, in elements; 0 repeats.
    types: the element types of the operands, then of dst.
    constants: (element type, value) each.
    program: instructions (function, numbers of its arguments). Values are numbered: the
        operands, the constants, then the result of each instruction. The last result is
        written to dst.
    pads: boxes of dst, as for copy, which are filled last.)");
    m.def(
        "joined",
        [](const Ints &shape, const std::vector<Ints> &strides,
           const std::vector<std::string> &types, const std::vector<ConstantRow> &constants,
           const std::vector<InstructionRow> &program, const std::vector<BoxRow> &pads,
           const Ints &pieces) {
            return Kernel(joined(shape, strides, types, rows<Constant>(constants),
                                 rows<Instruction>(program), rows<Box>(pads), pieces));
        },
        "shape"_a, "strides"_a, "types"_a, "constants"_a, "program"_a, "pads"_a, "pieces"_a,
        R"(Make a kernel as of pointwise, whose first operand is divided among several slots.

``pieces``: in each row of that operand, which has dst's order, slot i holds ``pieces[i]``
elements. These slots come first.)");
    m.def(
        "copy",
        [](const Ints &sizes, const std::vector<BoxRow> &boxes, Index item_bytes) {
            return Kernel(copy(sizes, rows<Box>(boxes), item_bytes));
        },
        "sizes"_a, "boxes"_a, "item_bytes"_a,
        R"(Make a kernel that copies boxes of elements. Slots: the sources, then dst.

Args:
    sizes: the number of elements of each source, then of dst.
    boxes: (source, shape, from, from_strides, to, to_strides, bits): the index of a
        source, and the box's offset and strides in that source, then in dst, in elements.
        If source is -1, the box of dst is filled with elements of these bits.
    item_bytes: bytes of an element, 1, 2, 4 or 8.)");
    m.def(
        "product",
        [](const std::string &type, const Ints &batch, const Ints &left, const Ints &right,
           Index m_, Index n, Index k) {
            return Kernel(product(type, batch, left, right, m_, n, k));
        },
        "element"_a, "batch"_a, "left_strides"_a, "right_strides"_a, "rows"_a, "columns"_a, "depth"_a,
        R"(Make a kernel for products of row-major matrices, one per index below ``batch``.

Each is left (``rows`` x ``depth``) times right (``depth`` x ``columns``). ``element``:
"f32", or "s32", which wraps around. Strides: from one matrix to the next along the axes
of ``batch``, in elements. Slots: left, right, dst.)");
    m.def(
        "dynamic_quantize",
        [](Index size, const std::vector<BoxRow> &pads) {
            return Kernel(dynamic_quantize(size, rows<Box>(pads)));
        },
        "size"_a, "pads"_a,
        R"(Make a kernel that quantizes f32 to u8 by the smallest scale that fits all values and 0.

``size``: number of elements; the boxes of ``pads``, as for copy, are filled last.
Slots: src, dst, scale (f32), zero (u8: the code of 0).)");
    m.def(
        "convolution",
        [](const std::string &type, const WindowRow &row, Index groups, Index outputs) {
            return Kernel(convolution(type, window(row), groups, outputs));
        },
        "element"_a, "window"_a, "groups"_a, "outputs"_a,
        R"(Make a kernel for a convolution, channels last.

Args:
    element: "f32", or "s32", which wraps around.
    window: (images, channels, src, dst, kernel, strides, dilations, begin): the sizes of
        src, of dst and of the window, then its strides, dilations and pads at the
        beginning, each along three spatial dims, in elements.
    outputs: channels of dst in each group.

Slots: src, weights (group, window, channel of src, channel of dst), dst, scratch if needed.)");
    m.def(
        "depthwise",
        [](const std::string &type, const WindowRow &row, Index multiplier) {
            return Kernel(depthwise(type, window(row), multiplier));
        },
        "element"_a, "window"_a, "multiplier"_a,
        R"(Make a kernel for a depthwise convolution, channels last.

``element``, ``window``: as for convolution. ``multiplier``: channels of dst for each of
src. Slots: src, weights (window, channel of src, channel of dst), dst.)");
    m.def(
        "pooling",
        [](const std::string &kind, const WindowRow &row, const Ints &end, float power) {
            return Kernel(pooling(kind, window(row), end, power));
        },
        "kind"_a, "window"_a, "end"_a, "power"_a,
        R"(Make a kernel for a pooling of f32, channels last. Slots: src, dst.

``kind``: "max", "avg_include_padding", "avg_exclude_padding", or "lp", the norm of
exponent ``power``. ``window``: as for convolution. ``end``: pads at the end, which a
mean that includes pads counts.)");
    m.def(
        "largest_place",
        [](const WindowRow &row, bool column_major) {
            return Kernel(largest_place(window(row), column_major));
        },
        "window"_a, "column_major"_a,
        R"(Make a kernel for a max pooling of f32, channels last, with the index of each maximum.

Slots: src, dst, indices (s64). An index counts the elements of all images in the order
N C D H W; with ``column_major``, in the order N C W H D. ``window``: as for
convolution.)");
    m.def(
        "reduction",
        [](const std::string &kind, const std::string &type, Index src, Index dst,
           const std::vector<BoxRow> &kept, const std::vector<BoxRow> &reduced,
           const std::vector<BoxRow> &pads) {
            return Kernel(reduction(kind, type, src, dst, rows<Box>(kept), rows<Box>(reduced),
                                    rows<Box>(pads)));
        },
        "kind"_a, "element"_a, "src"_a, "dst"_a, "kept"_a, "reduced"_a, "pads"_a,
        R"(Make a kernel for a reduction over boxes. Slots: src, dst.

Args:
    kind: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
        "log_sum_exp".
    element: the element type.
    src, dst: their numbers of elements.
    kept: boxes, as for copy, of the elements of dst: each is the reduction of the
        elements of src at its offset in src plus each offset of the boxes of ``reduced``.
    reduced: boxes, as for copy, whose offsets in dst are not read.
    pads: boxes of dst, as for copy, which are filled last.)");
    m.def(
        "normalization",
        [](const std::string &kind, const std::string &type, const std::string &parameter_type,
           const Ints &shape, Index first, Index last, const std::vector<Ints> &parameters,
           float epsilon) {
            return Kernel(normalization(kind, type, parameter_type, shape, first, last,
                                        parameters, epsilon));
        },
        "kind"_a, "element"_a, "parameter_type"_a, "shape"_a, "first"_a, "last"_a, "parameters"_a, "epsilon"_a,
        R"(Make a kernel for a normalization over the axes ``first`` to ``last`` - 1.

dst = (src - mean) * factor * scale + shift.

Args:
    kind: "layer" (factor 1 / sqrt(variance + epsilon)), "mean_variance" (1 / (standard
        deviation + epsilon)), or, without a mean, "rms" (1 / sqrt(mean square +
        epsilon)), "l1" or "l2" (1 / norm).
    element, parameter_type: the element types of src and dst, and of scale and shift.
    parameters: strides along ``shape``, in elements, of src, dst, scale and shift; the
        last two may be missing. src and dst are dense if axes follow the reduced ones.

Slots: src, scale, shift, dst, and for "layer" the mean and the factor, of f32.)");
    m.def(
        "softmax", [](Index count, Index length) { return Kernel(softmax(count, length)); },
        "rows"_a, "length"_a,
        "Make a kernel for softmax of ``rows`` rows of ``length`` f32 numbers. Slots: src, dst.");
    m.def(
        "attention",
        [](const Ints &batch, const SizesRow &sizes, const std::vector<Ints> &strides,
           const std::vector<MaskRow> &masks, float scale, float masked, bool zero) {
            return Kernel(attention(batch, std::make_from_tuple<AttentionSizes>(sizes), strides,
                                    rows<Mask>(masks), {scale, masked, zero}));
        },
        "batch"_a, "sizes"_a, "strides"_a, "masks"_a, "scale"_a, "masked"_a, "zero"_a,
        R"(Make a kernel for attention: softmax(scale * q * k^T, masked) * v.

Args:
    batch: the sizes of the axes before queries or keys.
    sizes: (queries, keys, columns of q and k, columns of v and dst).
    strides: of q, k, v and dst, in elements: along the axes of batch, then the offset of
        each row within its batch.
    masks: (strides along the axes of batch, queries and keys; whether it holds truth
        values) each. A score becomes ``masked`` where a truth mask is false; other masks
        are added.
    zero: whether a query whose weights are NaN gets 0.

Slots: q, k, v, the masks, dst.)");
    m.def(
        "lrn",
        [](Index count, Index length, Index size, float alpha, float beta, float bias) {
            return Kernel(lrn(count, length, size, alpha, beta, bias));
        },
        "rows"_a, "length"_a, "size"_a, "alpha"_a, "beta"_a, "bias"_a,
        R"(Make a kernel for local response normalization of rows of f32. Slots: src, dst.

dst = src / (bias + alpha / size * sum of squares of ``size`` neighbours) ** beta.)");
}

}  // namespace

}  // namespace vtensor::eigen

void vtensor::bind_kernels(nb::module_ &m) {
    m.doc() = "Kernels on Eigen, compiled for one instruction set.";
    eigen::bind_kernel(m);
    eigen::bind(m);
}
