// native/eigen/kernels.h: factories of kernels. Each function checks its numbers, throws
// std::invalid_argument, and returns a step that the caller owns.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// A box of elements: offset and strides in a source and in dst.
struct Box {
    Index source;  // the slot, or -1: the elements become `bits`
    Ints shape;
    Index from;
    Ints from_strides;
    Index to;
    Ints to_strides;
    std::uint64_t bits;
};

// A constant of an element-wise program, and its element type. A 64-bit integer may have no equal
// float.
struct Constant {
    std::string type;
    std::variant<Index, double> value;
};

// An instruction of an element-wise program: a function, such as "add f32", and the numbers of its
// argument values. Values are numbered: operands, then constants, then the results of instructions
// in order.
struct Instruction {
    std::string function;
    Ints arguments;
};

// Computes a program for each element of dst, which is dense, and stores its last value. strides: a
// row per operand, in elements along shape, 0 where it is repeated. types: the operands', then
// dst's. The boxes of `pads` are filled last.
Step *pointwise(const Ints &shape, const std::vector<Ints> &strides,
                const std::vector<std::string> &types, const std::vector<Constant> &constants,
                const std::vector<Instruction> &program, const std::vector<Box> &pads);

// Copies and fills boxes. sizes: elements of each source, then of dst. Elements have `item_bytes`
// (1, 2, 4 or 8).
Step *copy(const Ints &sizes, const std::vector<Box> &boxes, Index item_bytes);

// dst[b] = left[b] (rows x depth) * right[b] (depth x columns), all row-major, b over `batch`.
// type: "f32", or "s32", which wraps around.
Step *product(const std::string &type, const Ints &batch, const Ints &left_strides, const Ints &right_strides, Index rows,
              Index columns, Index depth);

// Dynamic quantization to u8, with the smallest scale that represents every value of src and 0.
// Arguments src, dst, the scale (f32), the code of 0 (u8). src and dst have `size` elements; the
// boxes of `pads` are filled last.
Step *dynamic_quantize(Index size, const std::vector<Box> &pads);

// A window over an image of three spatial dims; with fewer, the first ones are 1.
struct Window {
    Index images, channels;   // channels of src
    Ints src, dst;            // spatial sizes
    Ints kernel, strides, dilations, begin;
};

// Convolution: src N D H W C, weights G d h w I O, dst N D H W (G O); of "f32", or "s32", which
// wraps around.
Step *convolution(const std::string &type, const Window &window, Index groups, Index outputs);

// Depthwise convolution: src N D H W C, weights d h w C M, dst N D H W (C M); each channel has M
// kernels of its own. Types as for convolution.
Step *depthwise(const std::string &type, const Window &window, Index multiplier);

// Pooling. kind: "max", "avg_include_padding", "avg_exclude_padding", or "lp", the norm of exponent
// `power`. end: the pads at the end, which avg_include_padding counts.
Step *pooling(const std::string &kind, const Window &window, const Ints &end, float power);

// Max pooling with indices (s64): positions in an image of the order N C D H W, or with D fastest
// if column_major.
Step *largest_place(const Window &window, bool column_major);

// A reduction: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
// "log_sum_exp", of elements of a type. src, dst: the number of elements of each. A box of `kept`
// pairs elements of dst with offsets in src; such an element is the reduction of the elements at
// that offset plus each offset in the boxes of `reduced`, whose `to` is not read. The boxes of
// `pads` are filled last.
Step *reduction(const std::string &kind, const std::string &type, Index src, Index dst,
                const std::vector<Box> &kept, const std::vector<Box> &reduced,
                const std::vector<Box> &pads);

// (src - mean) * factor over the axes first .. last, by kind: "layer" (factor 1 / sqrt(variance +
// epsilon); mean and factor are outputs, f32), "rms" (no mean, 1 / sqrt(mean square + epsilon)),
// "mean_variance" (1 / (deviation + epsilon)), "l1" and "l2" (no mean, 1 / norm, or 1 if the norm
// is 0). parameters: strides along shape of src, of dst (both dense if axes follow the reduced
// ones), of a scale and of a shift.
Step *normalization(const std::string &kind, const std::string &type,
                    const std::string &parameter_type, const Ints &shape, Index first, Index last,
                    const std::vector<Ints> &parameters, float epsilon);

// Softmax of each row.
Step *softmax(Index rows, Index length);

// Rows of q; rows of k and v; columns of q and k; columns of v and y.
struct AttentionSizes {
    Index queries, keys, features, values;
};

// The strides of a mask along the batch's axes, queries and keys, 0 where it is repeated. A truth
// mask keeps scores where it is true; any other mask is added.
struct Mask {
    Ints strides;
    bool truth;
};

// The constants of an attention: factor of the scores, the score where a truth mask is false, and
// whether a query whose weights are NaN gets 0.
struct AttentionNumbers {
    float scale, masked;
    bool zero;
};

// y[b] = softmax(scale * q[b] * k[b]^T, masks applied in order) * v[b]. strides of q, k, v and y:
// along the batch's axes, then the offset of each row of a batch; columns are dense.
Step *attention(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
                const std::vector<Mask> &masks, const AttentionNumbers &numbers);

// Local response normalization over each row: x / (bias + alpha / size * squares around)^beta.
Step *lrn(Index rows, Index length, Index size, float alpha, float beta, float bias);

}  // namespace vtensor::eigen
