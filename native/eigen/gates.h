// native/eigen/gates.h: the activations of recurrent networks, and the gates of an LSTM.
#pragma once

#include <string>

#include "step.h"

namespace vtensor::eigen {

// An activation, by ONNX's name in lower case.
struct Activation {
    std::string name;
    float alpha, beta;
};

// An activation's function of n numbers, in place. All keep NaN, except thresholded relu, which
// makes 0 of it.
struct Applied {
    void (*function)(float *x, Index n, float alpha, float beta);
    float alpha, beta;
};

// Returns the function of an activation. Throws std::invalid_argument if there is none.
Applied applied(const Activation &activation);

// The cell of one direction. `functions` are applied to numbers that are at most `clip` from 0 if
// `limited`. `bias` (a row of `units` for each gate) and `peepholes` (three rows) may be null.
struct Cell {
    const Applied *functions;
    const float *bias, *peepholes;
    Index units;
    float clip;
    bool limited, coupled;

    // sum[u] += bias[row][u] for u from begin to end.
    void add_bias(float *sum, Index row, Index begin, Index end) const;
    // Applies function `which` to n numbers in place.
    void apply(Index which, float *x, Index n) const;
    // Advances units begin to end of one sequence of an LSTM. `gates` holds products of weights
    // with x and with the state, summed: rows of `units` for i, forget, c and o; it is overwritten.
    void remember(float *gates, Index begin, Index end, float *cell, float *hidden) const;
};

}  // namespace vtensor::eigen
