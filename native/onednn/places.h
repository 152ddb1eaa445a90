// native/onednn/places.h: positions of elements in memory.
#pragma once

#include "check.h"
#include "desc.h"

namespace vtensor::onednn {

// Returns the position, in elements, that an index of a dim contributes; the position of an element
// is the sum over its dims, plus the descriptor's offset.
dnnl_dim_t place(const Desc &desc, int dim, dnnl_dim_t index);

// Returns the position of each index of a dim.
Ints places(const Desc &desc, int dim);

}  // namespace vtensor::onednn
