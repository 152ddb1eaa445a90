// native/winograd/grouped.h: convolutions whose channels fall into groups of few.
#pragma once

#include "convolution.h"

namespace vtensor::winograd {

// As a convolution. The weights lie in products down, products across, then by vectors of results:
// the channels of their groups, and a number for each lane.
Step *grouped(const Convolution &call);

}  // namespace vtensor::winograd
