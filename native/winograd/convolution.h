// native/winograd/convolution.h: what a convolution is told.
#pragma once

#include <string>

#include "eigen/step.h"

namespace vtensor::winograd {

using eigen::Index;
using eigen::Ints;
using eigen::Step;

// Sizes are of two spatial dims, down and across. A block of 0: channels last; else channels lie in
// blocks of so many behind the spatial dims, and lanes past the last one are 0. Where a filter
// steps, src may have blocks of 1.
struct Convolution {
    Index images, channels, outputs, groups;
    Ints src, dst;
    Ints begin;    // zeros before the image
    Ints taps;     // the filter; of one that steps, its taps on each phase
    Ints results;  // of a tile
    Index step;    // of the filter, in both dims
    Index src_block, dst_block;
    bool bias, other;  // added to each result: a number for its channel, and one of its own
    float low, high;   // then bounds
};

// Slots: src, weights, bias and other if there are any, dst, and scratch if it needs some. The
// weights lie in products down, products across, outputs, channels, 32 outputs, padded with zeros.
// A filter of one element has tiles of one result, and weights that are not transformed. One that
// steps has as many weights for each channel as phases: down, then across.
Step *convolution(const Convolution &call);

}  // namespace vtensor::winograd
