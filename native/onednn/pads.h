// native/onednn/pads.h: the pads of convolutions' results. No Python in here.
#pragma once

#include "executable.h"
#include "primitive.h"

namespace vtensor::onednn {

// Returns the function that sets dst's pads to zero after a convolution; null if none is needed.
// Some kernels compute the pads of dst's last block like other channels, with weights of zero. A
// zero times an infinity or NaN is NaN, and readers of dst rely on pads of zero.
Afterwards clear_pads(const Primitive &primitive);

}  // namespace vtensor::onednn
