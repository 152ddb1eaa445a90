// native/eigen/module.cpp: the kernels as Python sees them; one module per instruction set.
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

namespace nb = nanobind;
using namespace nanobind::literals;

namespace vtensor::eigen {

namespace {

using BendsRow = std::tuple<Index, Index, Index, Index, bool>;
using BoxRow = std::tuple<Index, Ints, Index, Ints, Index, Ints, std::uint64_t>;
using ConstantRow = std::tuple<std::string, std::variant<Index, double>>;
using FramesRow =
    std::tuple<Index, Index, Index, Index, Index, Index, Index, Index, Index, bool, bool, bool>;
using InstructionRow = std::tuple<std::string, Ints>;
using MaskRow = std::tuple<Ints, bool>;
using NetworkRow = std::tuple<std::string, std::string, Index, Index, Index, Index,
                              std::vector<std::tuple<std::string, float, float>>, float, bool, bool>;
using SizesRow = std::tuple<Index, Index, Index, Index>;
using WindowRow = std::tuple<Index, Index, Ints, Ints, Ints, Ints, Ints, Ints>;

Window window(const WindowRow &row) { return std::make_from_tuple<Window>(row); }

void bind_signals(nb::module_ &m) {
    m.def(
        "col2im",
        [](const std::string &dtype, const WindowRow &row) {
            return Kernel(col2im(dtype, window(row)));
        },
        "dtype"_a, "window"_a,
        "Windows added up, each at its place in an image; arguments src (images taps places), dst.");
    m.def(
        "deformed",
        [](const WindowRow &row, const BendsRow &bends) {
            return Kernel(deformed(window(row), std::make_from_tuple<Bends>(bends)));
        },
        "window"_a, "bends"_a,
        R"(Convolution whose windows take elements from places beside their own.

Bends are (groups, parts, outputs, rank, masked). Arguments src (N C D H W), weights (O I d h w),
offset (N parts d h w rank D H W), mask (N parts d h w D H W) if there is one, dst, scratch.)");
    m.def(
        "fourier",
        [](const std::string &dtype, const FramesRow &row) {
            return Kernel(fourier(dtype, std::make_from_tuple<Frames>(row)));
        },
        "dtype"_a, "frames"_a,
        R"(Discrete Fourier transforms of frames; arguments src, a window if there is one, dst, scratch.

Frames are (series, size, src_parts, frames, step, taken, length, bins, dst_parts, inverse,
mirrored, windowed): of each series of so many numbers so many frames, of which so many numbers
are taken and zeros follow. Mirrored: the second half of what is transformed mirrors the first.)");
    m.def(
        "determinant",
        [](const std::string &dtype, Index matrices, Index order) {
            return Kernel(determinant(dtype, matrices, order));
        },
        "dtype"_a, "matrices"_a, "rows"_a,
        "Determinants of square matrices; arguments src, dst, scratch.");
    m.def(
        "recurrent",
        [](const NetworkRow &row, const std::vector<std::string> &given, Index length_bytes) {
            const auto &[cell, direction, times, batch, features, units, activations, clip, limited,
                         coupled] = row;
            const Network network{cell,  direction, times,   batch,  features, units,
                                  rows<Activation>(activations), clip, limited, coupled};
            return Kernel(recurrent(network, given, length_bytes));
        },
        "network"_a, "given"_a, "length_bytes"_a,
        R"(A network along a sequence; arguments x (T N F), w (dir gate unit F), r (dir gate unit
state), what is given, by name and in its order, y (T dir N unit), the last states, scratch.

A network is (cell, direction, times, batch, features, units, functions, clip, limited, coupled): a
cell is rnn, gru, lbr_gru or lstm; of each direction the functions (name, alpha, beta) of its gates.)");
}

void bind(nb::module_ &m) {
    m.attr("level") = VTENSOR_LEVEL;
    m.def("machine_level", &machine_level,
          "Return the best of the modules that this machine runs: baseline, avx2 or avx512.");
    m.attr("version") = std::to_string(EIGEN_WORLD_VERSION) + "." +
                        std::to_string(EIGEN_MAJOR_VERSION) + "." +
                        std::to_string(EIGEN_MINOR_VERSION);
    nb::class_<Kernel>(m, "Kernel", nb::is_final(), "A kernel as a step.")
        .def_prop_ro("kernel", &Kernel::name)
        .def_prop_ro("scratch_bytes", &Kernel::scratch_bytes, "Its last slot is scratch, if any.")
        .def("__vtensor_step__", &Kernel::capsule,
             "Return a capsule with a step of native/include/vtensor/step.h.")
        .def("__repr__", [](const Kernel &kernel) { return "Kernel(" + kernel.name() + ")"; });
    bind_moves(m);
    bind_signals(m);
    m.def(
        "pointwise",
        [](const Ints &shape, const std::vector<Ints> &strides,
           const std::vector<std::string> &types, const std::vector<ConstantRow> &constants,
           const std::vector<InstructionRow> &program, const std::vector<BoxRow> &pads) {
            return Kernel(pointwise(shape, strides, types, rows<Constant>(constants),
                                    rows<Instruction>(program), rows<Box>(pads)));
        },
        "shape"_a, "strides"_a, "types"_a, "constants"_a, "program"_a, "pads"_a,
        R"(An element-wise program; arguments: the operands, then dst, which is dense.

Strides count elements, 0 where an operand is repeated. Types are the operands', then dst's. Values
are numbered: operands, constants (type, value), then what each instruction (function, values)
gives; the last one is stored. The boxes of ``pads``, as for copy, are filled last.)");
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
        R"(Element-wise program whose first operand has dst's layout, in pieces: an argument each.

Of each row of it, each of the ``pieces`` has so many elements.)");
    m.def(
        "copy",
        [](const Ints &sizes, const std::vector<BoxRow> &boxes, Index item_bytes) {
            return Kernel(copy(sizes, rows<Box>(boxes), item_bytes));
        },
        "sizes"_a, "boxes"_a, "item_bytes"_a,
        R"(Boxes of elements from sources to dst; arguments: the sources, then dst.

A box is (source, shape, from, from_strides, to, to_strides, bits); source -1 fills with bits.
Elements have 1, 2, 4 or 8 bytes, whatever they mean.)");
    m.def(
        "product",
        [](const std::string &type, const Ints &batch, const Ints &left, const Ints &right,
           Index m_, Index n, Index k) {
            return Kernel(product(type, batch, left, right, m_, n, k));
        },
        "element"_a, "batch"_a, "left_strides"_a, "right_strides"_a, "rows"_a, "columns"_a, "depth"_a,
        "Products of row-major matrices of f32 or s32; arguments left, right, dst.");
    m.def(
        "dynamic_quantize",
        [](Index size, const std::vector<BoxRow> &pads) {
            return Kernel(dynamic_quantize(size, rows<Box>(pads)));
        },
        "size"_a, "pads"_a,
        R"(Steps of u8 of the scale that just holds every value; arguments src, dst, scale, zero.

The boxes of ``pads``, as for copy, are filled last.)");
    m.def(
        "convolution",
        [](const std::string &type, const WindowRow &row, Index groups, Index outputs) {
            return Kernel(convolution(type, window(row), groups, outputs));
        },
        "element"_a, "window"_a, "groups"_a, "outputs"_a,
        R"(Convolution of f32 or s32, channels last; arguments src, weights (G d h w I O), dst, scratch.

A window is (images, channels, src, dst, kernel, strides, dilations, begin); three spatial dims.)");
    m.def(
        "depthwise",
        [](const std::string &type, const WindowRow &row, Index multiplier) {
            return Kernel(depthwise(type, window(row), multiplier));
        },
        "element"_a, "window"_a, "multiplier"_a,
        "Convolution of each channel by itself; arguments src, weights (d h w C M), dst.");
    m.def(
        "pooling",
        [](const std::string &kind, const WindowRow &row, const Ints &end, float power) {
            return Kernel(pooling(kind, window(row), end, power));
        },
        "kind"_a, "window"_a, "end"_a, "power"_a, "Pooling, channels last; arguments src, dst.");
    m.def(
        "largest_place",
        [](const WindowRow &row, bool column_major) {
            return Kernel(largest_place(window(row), column_major));
        },
        "window"_a, "column_major"_a,
        R"(The largest of each window, and its place in an image of the order N C D H W.

Channels last; arguments src, dst, indices (s64).)");
    m.def(
        "reduction",
        [](const std::string &kind, const std::string &type, Index src, Index dst,
           const std::vector<BoxRow> &kept, const std::vector<BoxRow> &reduced,
           const std::vector<BoxRow> &pads) {
            return Kernel(reduction(kind, type, src, dst, rows<Box>(kept), rows<Box>(reduced),
                                    rows<Box>(pads)));
        },
        "kind"_a, "element"_a, "src"_a, "dst"_a, "kept"_a, "reduced"_a, "pads"_a,
        R"(A reduction of src elements to dst elements of a type; arguments src, dst.

``kind``: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
"log_sum_exp". Boxes are as for copy. Each element of a box of ``kept`` in dst is the reduction of
src there and at the offsets of all boxes of ``reduced``; those of ``pads`` are filled last.)");
    m.def(
        "normalization",
        [](const std::string &kind, const std::string &type, const std::string &parameter_type,
           const Ints &shape, Index first, Index last, const std::vector<Ints> &parameters,
           float epsilon) {
            return Kernel(normalization(kind, type, parameter_type, shape, first, last,
                                        parameters, epsilon));
        },
        "kind"_a, "element"_a, "parameter_type"_a, "shape"_a, "first"_a, "last"_a, "parameters"_a, "epsilon"_a,
        R"((src - mean) * factor * scale + shift over the axes first to last - 1.

``kind``: "layer", "rms", "mean_variance", "l1" or "l2". ``parameters``: strides in elements along
shape of src and dst, which are dense if axes lie behind the reduced ones, of the scale and of the
shift, as far as there are any. Arguments src, parameters, dst, and of "layer" the mean and the
factor.)");
    m.def(
        "softmax", [](Index count, Index length) { return Kernel(softmax(count, length)); },
        "rows"_a, "length"_a, "Softmax of each row; arguments src, dst.");
    m.def(
        "attention",
        [](const Ints &batch, const SizesRow &sizes, const std::vector<Ints> &strides,
           const std::vector<MaskRow> &masks, float scale, float masked, bool zero) {
            return Kernel(attention(batch, std::make_from_tuple<AttentionSizes>(sizes), strides,
                                    rows<Mask>(masks), {scale, masked, zero}));
        },
        "batch"_a, "sizes"_a, "strides"_a, "masks"_a, "scale"_a, "masked"_a, "zero"_a,
        R"(Attention; arguments q, k, v, the masks, y.

Sizes are (queries, keys, features of q and k, columns of v and y). Strides of q, k, v and y go
along the batch's axes, then say where each row of a batch begins; those of a mask, (strides,
whether it is truth values), go along the batch's axes, queries and keys. Where a truth mask is
false, a score is masked. With zero, a query whose weights are not numbers gets 0.)");
    m.def(
        "lrn",
        [](Index count, Index length, Index size, float alpha, float beta, float bias) {
            return Kernel(lrn(count, length, size, alpha, beta, bias));
        },
        "rows"_a, "length"_a, "size"_a, "alpha"_a, "beta"_a, "bias"_a,
        "Local response normalization along each row; arguments src, dst.");
}

}  // namespace

}  // namespace vtensor::eigen

NB_MODULE(VTENSOR_EIGEN_MODULE, m) {
    // Plans in Python hold kernels to the end of the process.
    nb::set_leak_warnings(false);
    m.doc() = "Kernels on Eigen, compiled for one instruction set.";
    vtensor::eigen::bind(m);
}
