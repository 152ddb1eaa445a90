// native/eigen/recurrent.h: recurrent networks.
#pragma once

#include <string>
#include <vector>

#include "gates.h"

namespace vtensor::eigen {

// cell: "rnn", "gru", "lbr_gru" (reset is applied to the product with h) or "lstm"; direction:
// "forward", "reverse" or "bidirectional". limited: the activations' inputs are at most `clip` from
// 0. coupled: an LSTM's input and forget gates are coupled.
struct Network {
    std::string cell, direction;
    Index times, batch, features, units;
    std::vector<Activation> activations;  // of each direction
    float clip;
    bool limited, coupled;
};

// All f32. Arguments: x (T N F), w (dir gate unit F), r (dir gate unit state), then the optional
// inputs `given`, in order: bias (dir row unit), lengths (N, integers of `length_bytes`), hidden
// and cell (dir N unit), peepholes (dir 3 unit); then y (T dir N unit), the last hidden state and,
// for an LSTM, the last cell state; scratch.
Step *recurrent(const Network &network, const std::vector<std::string> &given, Index length_bytes);

}  // namespace vtensor::eigen
