// native/winograd/direct.h: convolution of few unblocked channels, without a transform.
#pragma once

#include "eigen/step.h"

namespace vtensor::winograd {

using eigen::Index;
using eigen::Ints;
using eigen::Step;

// Sizes are of two spatial dims, down and across; blocks and added operands as in Convolution.
struct Direct {
    Index images, channels, outputs;
    Ints src, dst;
    Ints begin;  // zeros before the image, fewer than taps
    Ints taps;
    Ints strides;                // along the width 1, 2 or 4
    Index src_block, dst_block;  // channels of a block; src_block has to be 1
    bool bias, other;
    float low, high;
};

// Slots: src, weights, bias and other if there are any, dst. Weights are laid out as vectors of
// outputs, channels, taps down, taps across, outputs of a vector, padded with zeros.
Step *direct(const Direct &call);

}  // namespace vtensor::winograd
