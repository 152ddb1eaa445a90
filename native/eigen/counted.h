// native/eigen/counted.h: factories of kernels that find as much as the data decide. They write
// what they find at the begin of their slots, zeros after it, and the number found (s64) last.
#pragma once

#include <string>

#include "step.h"

namespace vtensor::eigen {

// The indices of the elements that are not 0; arguments src, indices (s64; rank, elements), count.
Step *nonzero(const std::string &dtype, const Ints &shape);

// The slices along the middle axis of (outer length inner) for which a condition is true; there may
// be more or fewer conditions than slices. Arguments src, condition, dst, count.
Step *select(Index outer, Index length, Index inner, Index conditions, Index item_bytes);

// The distinct slices along the middle axis, ascending if `ascending`, else by first occurrence. NaN
// equals NaN only if slices are `alone`, single elements. Arguments src, dst, indices of first
// occurrences, the index in dst of each slice, numbers of occurrences, count, scratch.
Step *unique(const std::string &dtype, Index outer, Index length, Index inner, bool alone,
             bool ascending);

// Boxes of images, with a score for each class. centered: a box is x and y of its centre, width and
// height, else y and x of two corners. overlap: the most of two chosen boxes, intersection by
// union.
struct Boxes {
    Index images, classes, count, most;  // most: of an image and class
    float overlap, score;
    bool centered;
};

// The boxes of the highest scores that overlap little; arguments boxes, scores (f32), indices (s64:
// image, class and box), count.
Step *suppression(const Boxes &boxes);

}  // namespace vtensor::eigen
