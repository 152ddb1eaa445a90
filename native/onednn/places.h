// native/onednn/places.h: where elements lie.
#pragma once

#include "check.h"
#include "desc.h"

namespace vtensor::onednn {

// Return the place of an element of a dim, in elements; the place of an element of the whole is the
// sum over its dims, plus the descriptor's offset.
dnnl_dim_t place(const Desc &desc, int dim, dnnl_dim_t index);

// Return the place of each element of a dim.
Ints places(const Desc &desc, int dim);

}  // namespace vtensor::onednn
