// native/onednn/sound.h: which of oneDNN's kernels stay inside their memory.
#pragma once

#include "primitive.h"

namespace vtensor::onednn {

// False for the combinations known to read or write outside of what their descriptors describe;
// each was found by running kernels on memory that ends at an unmapped page.
bool is_sound(const Primitive &primitive);

}  // namespace vtensor::onednn
