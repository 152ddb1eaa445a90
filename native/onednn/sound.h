// native/onednn/sound.h: which of oneDNN's kernels do what their descriptors say.
#pragma once

#include "primitive.h"

namespace vtensor::onednn {

// False for the combinations known to touch memory outside of what their descriptors describe, or
// to compute something else. Each was found by running the kernels of one request on memory that
// ends at an unmapped page, and comparing their results.
bool is_sound(const Primitive &primitive);

}  // namespace vtensor::onednn
