// native/eigen/recurrent.h: networks that go along a sequence and carry a state.
#pragma once

#include <string>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// A function of a gate by ONNX's name in lower case.
struct Activation {
    std::string name;
    float alpha, beta;
};

// cell: "rnn", "gru", "lbr_gru" (what is reset is the product with h) or "lstm"; direction:
// "forward", "reverse" or "bidirectional". Limited: what goes into functions is at most `clip` from
// 0. Coupled: an LSTM forgets as much as it takes in.
struct Network {
    std::string cell, direction;
    Index times, batch, features, units;
    std::vector<Activation> activations;  // of each direction
    float clip;
    bool limited, coupled;
};

// All f32; arguments x (T N F), w (dir gate unit F), r (dir gate unit state), then what is given, by
// name and in its order: bias (dir row unit), lengths (N, integers of so many bytes), hidden and cell
// (dir N unit), peepholes (dir 3 unit); then y (T dir N unit), the last hidden and, of an LSTM, the
// last cell; scratch.
Step *recurrent(const Network &network, const std::vector<std::string> &given, Index length_bytes);

}  // namespace vtensor::eigen
