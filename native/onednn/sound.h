// native/onednn/sound.h: kernels of oneDNN that do not do what their descriptors say.
#pragma once

#include "primitive.h"

namespace vtensor::onednn {

// Returns false for combinations known to touch memory outside of their descriptors, or to compute
// something else. Each was found by running the kernels of one request on memory that ends at an
// unmapped page, and comparing their results.
bool is_sound(const Primitive &primitive);

}  // namespace vtensor::onednn
