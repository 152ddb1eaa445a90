// native/eigen/boxes.h: boxes of elements, copied and filled.
#pragma once

#include "kernels.h"

namespace vtensor::eigen {

// Returns a box with its axes merged and in the order in which it is copied fastest. Throws
// std::invalid_argument unless a box that is not empty stays below `to_size` elements of dst and,
// unless it only fills, below `from_size` of its source.
Box arranged(const Box &box, Index from_size, Index to_size);

// Copies an arranged box, or fills it if src is null; elements have 1, 2, 4 or 8 bytes.
void move(const Box &box, std::size_t item_bytes, const void *src, void *dst);

}  // namespace vtensor::eigen
