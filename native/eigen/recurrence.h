// native/eigen/recurrence.h: the base class of recurrent networks: their sizes, optional inputs and
// states. The outputs for the last states hold the current states meanwhile.
#pragma once

#include <algorithm>
#include <functional>
#include <map>

#include "check.h"
#include "recurrent.h"

namespace vtensor::eigen {

class Recurrence : public Step {
protected:
    Recurrence(const std::string &name, const Network &network, Index length_bytes)
        : Step(name), network_(network), length_bytes_(length_bytes) {
        demand(network.times >= 0 && network.batch >= 0 && network.features >= 0 &&
                   network.units >= 0 && (!network.limited || network.clip >= 0),
               "a size is negative");
        const bool both = network.direction == "bidirectional";
        lstm_ = network.cell == "lstm";
        linear_ = network.cell == "lbr_gru";
        plain_ = network.cell == "rnn";
        demand(lstm_ || linear_ || plain_ || network.cell == "gru", "there is no such cell");
        demand(both || network.direction == "forward" || network.direction == "reverse",
               "there is no such direction");
        directions_ = both ? 2 : 1;
        gates_ = plain_ ? 1 : lstm_ ? 4 : 3;
        functions_ = plain_ ? 1 : lstm_ ? 3 : 2;
        demand(static_cast<Index>(network.activations.size()) == functions_ * directions_,
               "another number of functions than gates need");
        for (const Activation &one : network.activations) applied_.push_back(applied(one));
        width_ = times(gates_, network.units);
        states_ = times(network.batch, network.units);
    }

    // Adds the slots of the optional inputs, of which the first one is slot `first`, and of outputs.
    void add_states(const std::vector<std::string> &given, std::size_t first) {
        const Index units = network_.units, state = product({directions_, network_.batch, units});
        results_ = first;
        for (const std::string &name : given) {
            demand(slots_of_.emplace(name, results_++).second, "something is given twice");
            if (name == "bias") {
                add_slot("bias", VTENSOR_READ, product({directions_, bias_rows(), units}));
            } else if (name == "lengths") {
                demand(length_bytes_ == 4 || length_bytes_ == 8, "lengths of 4 or 8 bytes only");
                add_slot("lengths", VTENSOR_READ, network_.batch,
                         static_cast<std::uint32_t>(length_bytes_));
            } else if (name == "hidden" || (name == "cell" && lstm_)) {
                add_slot(name == "cell" ? "cell" : "hidden", VTENSOR_READ, state);
            } else if (name == "peepholes" && lstm_) {
                add_slot("peepholes", VTENSOR_READ, product({directions_, 3, units}));
            } else {
                refuse("nothing of the name " + name + " may be given");
            }
        }
        add_slot("y", VTENSOR_WRITE, product({network_.times, network_.batch, directions_, units}));
        add_slot("last hidden", VTENSOR_WRITE, state);
        if (lstm_) add_slot("last cell", VTENSOR_WRITE, state);
    }

    Index bias_rows() const { return gates_ + (linear_ ? 1 : 0); }
    bool backwards(Index d) const { return d == 1 || network_.direction == "reverse"; }

    // Returns the optional input of this name, or null.
    const void *find(void *const *slots, const char *name) const {
        const auto found = slots_of_.find(name);
        return found == slots_of_.end() ? nullptr : slots[found->second];
    }
    const float *find(void *const *slots, const char *name, Index offset) const {
        const void *found = find(slots, name);
        return found == nullptr ? nullptr : static_cast<const float *>(found) + offset;
    }

    Cell cell_of(void *const *slots, Index d) const {
        return {.functions = applied_.data() + d * functions_,
                .bias = find(slots, "bias", d * bias_rows() * network_.units),
                .peepholes = find(slots, "peepholes", d * 3 * network_.units),
                .units = network_.units,
                .clip = network_.clip,
                .limited = network_.limited,
                .coupled = network_.coupled};
    }

    // Returns the states of a direction, set to the first ones: those given under a name, or 0.
    float *begin(void *const *slots, Index d, const char *name) const {
        const bool hidden = std::string_view(name) == "hidden";
        float *state = output(slots, results_ + (hidden ? 1 : 2)) + d * states_;
        const float *first = find(slots, name, d * states_);
        if (first == nullptr) {
            std::fill_n(state, states_, 0.0F);
        } else {
            std::copy_n(first, states_, state);
        }
        return state;
    }

    float *y(void *const *slots) const { return output(slots, results_); }
    float *scratch(void *const *slots) const { return output(slots, results_ + (lstm_ ? 3 : 2)); }

    Index length(const void *lengths, Index n) const {
        return length_bytes_ == 4 ? static_cast<const std::int32_t *>(lengths)[n]
                                  : static_cast<const std::int64_t *>(lengths)[n];
    }

    Network network_;
    bool lstm_, linear_, plain_;
    Index directions_, gates_, functions_;
    Index width_;   // the units of all gates
    Index states_;  // the numbers of a state of one direction

private:
    Index length_bytes_;
    std::vector<Applied> applied_;
    std::map<std::string, std::size_t, std::less<>> slots_of_;
    std::size_t results_ = 0;
};

}  // namespace vtensor::eigen
