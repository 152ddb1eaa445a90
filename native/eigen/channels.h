// native/eigen/channels.h: the channels of a pixel, a few registers of them at a time.
#pragma once

#include <Eigen/Core>
#include <algorithm>

#include "step.h"

namespace vtensor::eigen {

constexpr int kChannels = 64;

// As many as there are, up to kChannels: on the stack, and in registers where it is a whole block.
using Few = Eigen::Array<float, Eigen::Dynamic, 1, Eigen::ColMajor, kChannels, 1>;
using Block = Eigen::Array<float, kChannels, 1>;

// Calls body(block, first) for each whole block of channels, and body(few, first) for the rest.
template <class Body>
void for_each_block(Index channels, const Body &body) {
    Index first = 0;
    for (; first + kChannels <= channels; first += kChannels) {
        Block block;
        body(block, first);
    }
    if (first < channels) {
        Few few(channels - first);
        body(few, first);
    }
}

// The same number of elements of some memory.
template <class Values>
Eigen::Map<const Values> like(const Values &values, const float *at) {
    return {at, values.size()};
}
template <class Values>
Eigen::Map<Values> like(const Values &values, float *at) {
    return {at, values.size()};
}

}  // namespace vtensor::eigen
