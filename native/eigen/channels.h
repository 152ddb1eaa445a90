// native/eigen/channels.h: the channels of a pixel, a few registers of them at a time.
#pragma once

#include <Eigen/Core>
#include <algorithm>

#include "step.h"

namespace vtensor::eigen {

constexpr int kMany = 64, kSome = 16;

// A whole block is in registers; the remainder, fewer than kSome channels, is on the stack.
template <int count, class T = float>
using Block = Eigen::Array<T, count, 1>;
template <class T>
using Few = Eigen::Array<T, Eigen::Dynamic, 1, Eigen::ColMajor, kSome, 1>;

// Calls body(block, first) for each block of channels.
template <class T = float, class Body>
void for_each_block(Index channels, const Body &body) {
    Index first = 0;
    for (; first + kMany <= channels; first += kMany) {
        Block<kMany, T> block;
        body(block, first);
    }
    for (; first + kSome <= channels; first += kSome) {
        Block<kSome, T> block;
        body(block, first);
    }
    if (first < channels) {
        Few<T> few(channels - first);
        body(few, first);
    }
}

// Returns a view of as many elements from `at` on as `values` has.
template <class Values>
Eigen::Map<const Values> like(const Values &values, const typename Values::Scalar *at) {
    return {at, values.size()};
}
template <class Values>
Eigen::Map<Values> like(const Values &values, typename Values::Scalar *at) {
    return {at, values.size()};
}

}  // namespace vtensor::eigen
