// native/winograd/pointwise.h: the form without a transform, of a filter of one element.
#pragma once

#include "convolution.h"

namespace vtensor::winograd {

// Nothing lies before or behind the image. The slots are those of any convolution; there is no
// scratch.
Step *pointwise(const Convolution &call);

}  // namespace vtensor::winograd
