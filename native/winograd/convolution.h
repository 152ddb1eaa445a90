// native/winograd/convolution.h: the parameters of a convolution.
#pragma once

#include <string>

#include "eigen/step.h"

namespace vtensor::winograd {

using eigen::Index;
using eigen::Ints;
using eigen::Step;

// Sizes are of two spatial dims, down and across. The value 0 of src_block or dst_block means
// channels last. Any other value is the size of the blocks of channels: each block is an image of
// pixels with that many channels, and lanes past the last channel are 0. Blocks of 1 (channels
// first) are allowed for src if `step` is above 1.
struct Convolution {
    Index images, channels, outputs, groups;
    Ints src, dst;
    Ints begin;    // zeros before the image
    Ints taps;     // of the filter; with `step` above 1, of a phase: every step-th tap
    Ints results;  // of a tile
    Index step;    // stride of the filter, in both dims
    Index src_block, dst_block;
    bool bias, other;  // added to each result: a number per channel, and a number of its own
    float low, high;   // then results are bounded by these
};

// Slots: src, weights, bias and other if there are any, dst, and scratch if needed. Weights are
// laid out as products down, products across, outputs, channels, 32 outputs, padded with zeros. A
// filter of one element has tiles of one result and untransformed weights. With `step` above 1
// there are weights for each phase of each channel: phases down, then across.
Step *convolution(const Convolution &call);

// Returns how many f32 a vector of this module's instruction set has.
Index lanes();

}  // namespace vtensor::winograd
