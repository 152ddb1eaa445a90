// native/eigen/kernels.h: the kernels; each function checks its numbers and throws
// std::invalid_argument. The caller owns the result.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// A box of elements: where it begins and how far its neighbours are, in a source and in dst.
struct Box {
    Index source;  // the slot, or -1: the elements become `bits`
    Ints shape;
    Index from;
    Ints from_strides;
    Index to;
    Ints to_strides;
    std::uint64_t bits;
};

// A number of an element-wise program, and the element type that it is of. An integer of 64 bits
// may have no equal among floats.
struct Constant {
    std::string type;
    std::variant<Index, double> value;
};

// One instruction of an element-wise program: a function, such as "add f32", of values. Those are
// numbered: first the operands, then the constants, then the results of instructions in order.
struct Instruction {
    std::string function;
    Ints arguments;
};

// The last value of a program for each element of dst, which is dense. strides: one row an
// operand, in elements along shape, 0 where it is repeated. types: the operands', then dst's. The
// boxes of `pads` are filled last.
Step *pointwise(const Ints &shape, const std::vector<Ints> &strides,
                const std::vector<std::string> &types, const std::vector<Constant> &constants,
                const std::vector<Instruction> &program, const std::vector<Box> &pads);

// Copies and fills boxes; sizes are the elements of each source, then of dst. Elements have
// `item_bytes` (1, 2, 4 or 8), whatever they mean.
Step *copy(const Ints &sizes, const std::vector<Box> &boxes, Index item_bytes);

// dst[b] = left[b] (rows x depth) * right[b] (depth x columns), all row-major, b over `batch`. type:
// "f32" or "s32", which wraps around.
Step *product(const std::string &type, const Ints &batch, const Ints &left_strides, const Ints &right_strides, Index rows,
              Index columns, Index depth);

// Steps of u8 of the scale that just holds every value of src, and 0; then the scale, f32, and the
// step that stands for 0. src and dst have `size` elements; the boxes of `pads` are filled last.
Step *dynamic_quantize(Index size, const std::vector<Box> &pads);

// What slides over an image of three spatial dims; of fewer, the first ones are 1.
struct Window {
    Index images, channels;   // channels of src
    Ints src, dst;            // spatial sizes
    Ints kernel, strides, dilations, begin;
};

// src N D H W C, weights G d h w I O, dst N D H W (G O); of "f32", or "s32", which wraps around.
Step *convolution(const std::string &type, const Window &window, Index groups, Index outputs);

// src N D H W C, weights d h w C M, dst N D H W (C M): each channel has M kernels of its own; types
// as above.
Step *depthwise(const std::string &type, const Window &window, Index multiplier);

// kind: "max", "avg_include_padding", "avg_exclude_padding", where `end` bounds what counts as
// padding; or "lp", the norm of a power.
Step *pooling(const std::string &kind, const Window &window, const Ints &end, float power);

// The largest of each window, and its place in the image, which has the order N C D H W; with
// column_major D is fastest. indices are of s64.
Step *largest_place(const Window &window, bool column_major);

// A reduction: "sum", "mean", "prod", "max", "min", "l1", "l2", "sum_square", "log_sum" or
// "log_sum_exp", of elements of a type. src and dst are their numbers of elements. Of a box of
// `kept`, each element of dst is the reduction of src there and at the offsets of all boxes of
// `reduced`, of which `to` is not read. The boxes of `pads` are filled last.
Step *reduction(const std::string &kind, const std::string &type, Index src, Index dst,
                const std::vector<Box> &kept, const std::vector<Box> &reduced,
                const std::vector<Box> &pads);

// (src - mean) * factor over the axes first .. last: "layer" (factor 1 / sqrt(variance
// + epsilon); mean and factor are outputs, f32), "rms" (no mean, 1 / sqrt(mean square + epsilon)),
// "mean_variance" (1 / (deviation + epsilon)), "l1" and "l2" (no mean, 1 / norm, or 1 where that is
// 0). parameters: strides along shape, of src and dst (dense if axes lie behind), of a scale and a
// shift.
Step *normalization(const std::string &kind, const std::string &type,
                    const std::string &parameter_type, const Ints &shape, Index first, Index last,
                    const std::vector<Ints> &parameters, float epsilon);

// Softmax of each row.
Step *softmax(Index rows, Index length);

// How many rows q has, how many k and v, and the columns of q and k, and of v and y.
struct AttentionSizes {
    Index queries, keys, features, values;
};

// Strides along the batch's axes, queries and keys, 0 where it is repeated. A truth mask keeps
// scores where it is true, any other is added.
struct Mask {
    Ints strides;
    bool truth;
};

// What products are multiplied by, what one becomes that a mask hides, and whether a query whose
// weights are not numbers gets 0.
struct AttentionNumbers {
    float scale, masked;
    bool zero;
};

// y[b] = softmax(scale * q[b] * k[b]^T, masks in their order) * v[b]; strides of q, k, v and y are
// along the batch's axes, then where each row of a batch begins; columns are dense.
Step *attention(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
                const std::vector<Mask> &masks, const AttentionNumbers &numbers);

// Local response normalization over each row: x / (bias + alpha / size * squares around)^beta.
Step *lrn(Index rows, Index length, Index size, float alpha, float beta, float bias);

}  // namespace vtensor::eigen
