// native/eigen/channels.h: the channels of a pixel, a few registers of them at a time.
#pragma once

#include <Eigen/Core>
#include <algorithm>

#include "step.h"

namespace vtensor::eigen {

constexpr int kMany = 64, kSome = 16;

// A whole block is in registers; what is left, fewer than kSome, on the stack.
template <int count>
using Block = Eigen::Array<float, count, 1>;
using Few = Eigen::Array<float, Eigen::Dynamic, 1, Eigen::ColMajor, kSome, 1>;

// Calls body(block, first) for each block of channels.
template <class Body>
void for_each_block(Index channels, const Body &body) {
    Index first = 0;
    for (; first + kMany <= channels; first += kMany) {
        Block<kMany> block;
        body(block, first);
    }
    for (; first + kSome <= channels; first += kSome) {
        Block<kSome> block;
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
