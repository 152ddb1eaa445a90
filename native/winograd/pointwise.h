// native/winograd/pointwise.h: convolution with a filter of one element, without a transform.
#pragma once

#include "convolution.h"

namespace vtensor::winograd {

// A convolution without pads. Slots are those of any convolution, without scratch.
Step *pointwise(const Convolution &call);

}  // namespace vtensor::winograd
