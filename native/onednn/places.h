// native/onednn/places.h: where elements lie.
#pragma once

#include "check.h"
#include "desc.h"

namespace vtensor::onednn {

// Where the elements of a dim lie, in elements; the place of an element is a sum over its dims,
// plus the descriptor's offset.
Ints places(const Desc &desc, int dim);

}  // namespace vtensor::onednn
