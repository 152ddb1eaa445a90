// native/winograd/grouped.h: grouped convolutions with few channels per group.
#pragma once

#include "convolution.h"

namespace vtensor::winograd {

// A convolution with groups. Weights are laid out as products down, products across, vectors of
// results, channels of their groups, lanes.
Step *grouped(const Convolution &call);

}  // namespace vtensor::winograd
