// native/eigen/moves.h: factories of kernels that move and pick elements. Each function checks its
// numbers, throws std::invalid_argument, and returns a step that the caller owns. Elements have
// `item_bytes` (1, 2, 4 or 8), unless an element type is given by name.
#pragma once

#include <string>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// A run of an axis of dst: `count` elements from `begin` in src (-1 fills), `step` apart there.
struct Run {
    Index count, begin, step;
};

// Copies to each position of dst, which is dense, the element of src at the sum of its axes'
// offsets; filled elements get `bits`.
Step *pick(const std::vector<std::vector<Run>> &axes, Index src_elements, std::uint64_t bits,
           Index item_bytes);

// An axis that indices address: size, stride, and name.
struct Addressed {
    Index size, stride;
    std::string name;
};

// Indexed positions in a tensor, numbered by counters c below `shape`. Position c has an index for
// each of `axes`; these indices are contiguous, from offset sum(c * strides) on. The position's
// `inner` elements begin at sum(c * bases) plus the sum of each index times its axis' stride.
struct Places {
    Ints shape, strides, bases;
    std::vector<Addressed> axes;
    Index inner, indices, elements;  // number of indices, and of elements in the tensor
};

// Copies the elements at the positions of src to dst, which is dense; arguments src, indices, dst.
Step *gather(const Places &places, Index index_bytes, Index item_bytes);

// Copies src to dst and writes updates (dense) at the positions. reduction: "none" replaces; "add",
// "mul", "max", "min" combine the former element and the update. Updates of one position apply in
// order.
Step *scatter(const Places &places, Index index_bytes, const std::string &dtype,
              const std::string &reduction);

// Overwritten parts of rows: along `axis`, `count` positions of each row, from its batch's start
// on. starts: the number of batches that the rows belong to; -1: there are no starts, all are 0.
// circular: the first position follows the last.
struct Cache {
    Index outer;
    Addressed axis;  // its stride is not read
    Index count, inner, starts;
    bool circular;
};

// Copies src to dst with parts overwritten; arguments src, update, start (s64) if there are starts,
// dst.
Step *overwrite(const Cache &cache, Index item_bytes);

// MaxUnpool: writes the `each` elements of every layer of src to their indices (s64) in dst, and
// zeros elsewhere. Indices count the elements of an image of all layers with the spatial sizes
// `counted`; dst may be larger. An index outside of the image is skipped; of equal indices the last
// counts.
Step *unpool(Index layers, Index each, const Ints &counted, const Ints &dst, Index item_bytes);

// dst[o, d, i] = values[1] if d is the index at [o, i], or the index + depth; else values[0].
Step *one_hot(Index outer, Index depth, Index inner, Index index_bytes, Index item_bytes);

// dst[b, t] = src[b, length[b] - 1 - t] for t < length[b], else src[b, t].
Step *reverse_sequence(Index batch, Index time, Index inner, Index index_bytes, Index item_bytes);

// Copies of each matrix the part on one side of the diagonal `k`, inclusive; 0 elsewhere.
Step *triangle(Index matrices, Index rows, Index columns, Index k, bool upper, Index item_bytes);

// dst[o, i] (s64) = the index along the middle axis of the largest or smallest element; of equal
// ones the last if `last`, else the first.
Step *extreme_place(const std::string &dtype, Index outer, Index length, Index inner, bool largest,
                    bool last);

// Writes 1 at the first of the largest elements of each row, 0 elsewhere, in the same type.
Step *hardmax(const std::string &dtype, Index rows, Index length);

// Writes the `count` largest or smallest elements along the middle axis, in order, and their
// indices (s64); arguments src, values, indices, scratch.
Step *top(const std::string &dtype, Index outer, Index length, Index inner, Index count,
          bool largest);

// Running sums or products along the middle axis. exclusive: without the element itself; reverse:
// from the end.
Step *running(const std::string &dtype, Index outer, Index length, Index inner, bool product,
              bool exclusive, bool reverse);

// An axis of an image at another size: each of its elements in dst is a weighted sum of taps.
struct Blend {
    Index outer, from, inner;
    Ints ends;                   // one past the last tap of each element of dst
    Ints near;                   // the element of src of each tap,
    std::vector<float> weights;  // and its weight
};

// Computes weighted sums along one axis after another; f32, f16 or bf16.
Step *blend(const std::string &dtype, const std::vector<Blend> &axes);

// An image of up to three spatial dims; missing dims have size 1.
struct Sampled {
    Index images, channels;
    Ints src, dst;
    Index rank;
};

// GridSample. mode: "nearest", "linear", "cubic"; padding: "zeros", "border", "reflection".
// Arguments src (N C D H W), grid (N D H W axis), dst; each of both types is f32, f16 or bf16.
Step *grid_sample(const std::string &dtype, const std::string &grid_dtype, const Sampled &image,
                  const std::string &mode, const std::string &padding, bool corners);

// Boxes of images, resampled to one size.
struct Align {
    Index boxes, images, channels, height, width;  // of src
    Index rows, columns;                           // of dst
    bool largest;
    Index samples, most;  // per bin (0: as many as it spans); most along a box
    float scale;
    bool half_pixel;
};

// RoiAlign. Arguments src (N C H W), boxes (R 4), image (R), dst (R C H' W'); f32, f16 or bf16.
Step *roi_align(const std::string &dtype, const std::string &box_dtype, const Align &align,
                Index index_bytes);

}  // namespace vtensor::eigen
