// native/winograd/depthwise.h: depthwise convolution, without a transform.
#pragma once

#include "eigen/step.h"

namespace vtensor::winograd {

using eigen::Index;
using eigen::Ints;
using eigen::Step;

// Sizes are of two spatial dims, down and across; blocks and added operands as in Convolution.
struct Depthwise {
    Index images, channels;
    Ints src, dst;
    Ints begin;  // zeros before the image, fewer than taps
    Ints taps;   // 3, 5 or 7 across
    Ints strides;
    Index src_block, dst_block;
    bool bias, other;
    float low, high;
};

// Slots: src, weights, bias and other if there are any, dst. Weights are laid out as vectors of
// channels, taps down, taps across, channels of a vector, padded with zeros.
Step *depthwise(const Depthwise &call);

}  // namespace vtensor::winograd
