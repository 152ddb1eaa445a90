// native/eigen/moves.h: the kernels that move and pick elements; each function checks its numbers
// and throws std::invalid_argument. The caller owns the result. Elements have `item_bytes` (1, 2, 4
// or 8), whatever they mean, unless an element type is given by name.
#pragma once

#include <string>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// A piece of an axis of dst: `count` elements, each `step` further on in src than the one before;
// begin -1: they are filled.
struct Run {
    Index count, begin, step;
};

// dst, dense, holds at each place the element of src at the sum of what its axes say.
Step *pick(const std::vector<std::vector<Run>> &axes, Index src_elements, std::uint64_t bits,
           Index item_bytes);

// An axis that data addresses: its size, how far apart its elements lie, and its name.
struct Addressed {
    Index size, stride;
    std::string name;
};

// Places in a tensor, one for each index below `shape`: each begins at the sum of index * bases and
// of what the addressed axes add, and has `inner` elements. The numbers that address begin at the
// sum of index * strides among the indices, one for each axis, side by side.
struct Places {
    Ints shape, strides, bases;
    std::vector<Addressed> axes;
    Index inner, indices, elements;  // how many indices there are, how many elements in the tensor
};

// dst, dense, gets what lies at the places of src; arguments src, indices, dst.
Step *gather(const Places &places, Index index_bytes, Index item_bytes);

// dst is src, but for its places, which get the updates (dense); reduction: "none", or "add",
// "mul", "max", "min" of what was there and the update. Those that meet are taken in their order.
Step *scatter(const Places &places, Index index_bytes, const std::string &dtype,
              const std::string &reduction);

// Rows of caches: along its axis, `count` elements of each row are overwritten, from a place of the
// row's batch on. The rows fall into `starts` batches; -1: all begin at 0. Circular: beyond the last
// element comes the first.
struct Cache {
    Index outer;
    Addressed axis;  // of which the stride is not looked at
    Index count, inner, starts;
    bool circular;
};

// dst is src, but for the elements that are overwritten; arguments src, update, start (s64) if
// there is one, dst.
Step *overwrite(const Cache &cache, Index item_bytes);

// `each` elements of a layer of src at places that indices (s64) count in an image of all layers, of
// spatial sizes `counted`; zeros elsewhere in dst, which may be larger. An index outside of the image
// is left out; where several meet, the last one stays.
Step *unpool(Index layers, Index each, const Ints &counted, const Ints &dst, Index item_bytes);

// dst[o, d, i] = values[1] where d is the index at [o, i], or the index + depth; else values[0].
Step *one_hot(Index outer, Index depth, Index inner, Index index_bytes, Index item_bytes);

// dst[b, t] = src[b, length[b] - 1 - t] below the length of b, and src[b, t] elsewhere.
Step *reverse_sequence(Index batch, Index time, Index inner, Index index_bytes, Index item_bytes);

// Of each matrix what lies on one side of the diagonal `k`, itself included; else 0.
Step *triangle(Index matrices, Index rows, Index columns, Index k, bool upper, Index item_bytes);

// dst[o, i] (s64) = where along the axis in the middle the largest or smallest element is.
Step *extreme_place(const std::string &dtype, Index outer, Index length, Index inner, bool largest,
                    bool last);

// 1 at the first of the largest elements of each row, 0 elsewhere, in the same type.
Step *hardmax(const std::string &dtype, Index rows, Index length);

// The `count` largest or smallest elements along the axis in the middle, in order, and where they
// are (s64); arguments src, values, indices, scratch.
Step *top(const std::string &dtype, Index outer, Index length, Index inner, Index count,
          bool largest);

// Running sums or products along the axis in the middle.
Step *running(const std::string &dtype, Index outer, Index length, Index inner, bool product,
              bool exclusive, bool reverse);

// One axis of an image at another size: each of its `sizes` elements is a sum over `taps`.
struct Blend {
    Index outer, from, inner;
    Ints ends;                   // one past the last tap of each element of dst
    Ints near;                   // of each tap the element of src,
    std::vector<float> weights;  // and what it counts
};

// Blends one axis after another; f32, f16 or bf16.
Step *blend(const std::string &dtype, const std::vector<Blend> &axes);

// An image of up to three spatial dims, all sizes of three: those that lack are 1.
struct Sampled {
    Index images, channels;
    Ints src, dst;
    Index rank;
};

// mode: "nearest", "linear", "cubic"; padding: "zeros", "border", "reflection". Arguments src
// (N C D H W), grid (N D H W axis), dst; each of both types is f32, f16 or bf16.
Step *grid_sample(const std::string &dtype, const std::string &grid_dtype, const Sampled &image,
                  const std::string &mode, const std::string &padding, bool corners);

// Boxes of images brought to one size.
struct Align {
    Index boxes, images, channels, height, width;  // of src
    Index rows, columns;                           // of dst
    bool largest;
    Index samples, most;  // along a bin; 0: as many as it spans. Along a box at most.
    float scale;
    bool half_pixel;
};

// Arguments src (N C H W), boxes (R 4), image (R), dst (R C H' W'); f32, f16 or bf16.
Step *roi_align(const std::string &dtype, const std::string &box_dtype, const Align &align,
                Index index_bytes);

}  // namespace vtensor::eigen
