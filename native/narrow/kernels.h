// native/narrow/kernels.h: factories of kernels. Each checks its numbers, throws
// std::invalid_argument, and returns a step that the caller owns.
#pragma once

#include <string>

#include "eigen/step.h"
#include "ending.h"
#include "multiply.h"

namespace vtensor::narrow {

using eigen::Step;

// A product of matrices for each index of a batch. Steps: along the batch's axes, in matrices.
struct Product {
    std::string instructions;
    Ints batch, left_steps, right_steps;
    Index rows, columns, depth;
    std::string left_type, right_type;  // u8 or s8
    std::string right;                  // "panels", "rows" or "columns"
    Index left_zeros, right_zeros;      // elements of each zero point: 0, 1, or as many as there are
                                        // rows of all left, columns of all right matrices
    EndingCall ending;
};

// Slots: left, right, zero points if any, operands of the ending, dst, scratch if needed.
Step *product(const Product &call);

// A convolution over three spatial dims, channels last.
struct Convolution {
    std::string instructions;
    Index images, channels, outputs, groups;
    Ints src, dst, taps, strides, dilations, begin;
    std::string src_type, weights_type;
    std::string weights;             // "panels" or "plain"
    Index src_zeros, weights_zeros;  // elements of each zero point: 0, 1, or as many as outputs
    EndingCall ending;
};

// Slots as for product. Weights have panels for each group; a panel's rows are the taps, each with
// the channels of a group, padded to a multiple of 4. Plain weights are groups, outputs, taps,
// channels.
Step *convolution(const Convolution &call);

// The same with one output for each channel. Weights are taps, then channels, as they are.
Step *depthwise(const Convolution &call);

}  // namespace vtensor::narrow
