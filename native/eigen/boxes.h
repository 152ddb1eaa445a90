// native/eigen/boxes.h: boxes of elements, copied and filled.
#pragma once

#include "kernels.h"

namespace vtensor::eigen {

// Returns a box with axes in a good order for memory. Checks that a box that is not empty stays
// below `to_size` elements of dst and, unless it only fills, `from_size` of its source. Throws
// std::invalid_argument.
Box arranged(const Box &box, Index from_size, Index to_size);

// Copies an arranged box, or fills it if src is null; elements have 1, 2, 4 or 8 bytes.
void move(const Box &box, std::size_t item_bytes, const void *src, void *dst);

}  // namespace vtensor::eigen
