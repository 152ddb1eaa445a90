// native/eigen/recurrent.cpp: recurrent networks.
//
// The sequence's part of the gates' inputs is one product for many time steps; the state's part is
// a product per time step. The outputs for the last states hold the current states meanwhile.
#include "recurrent.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "check.h"
#include "matrix.h"

namespace vtensor::eigen {

namespace {

using Function = float (*)(float x, float alpha, float beta);

// The activations keep NaN, except thresholded relu, which makes 0 of it.
const std::map<std::string, Function> &functions() {
    static const std::map<std::string, Function> all{
        {"affine", [](float x, float a, float b) { return a * x + b; }},
        {"elu", [](float x, float a, float) { return x >= 0 ? x : a * std::expm1(x); }},
        {"hardsigmoid",
         [](float x, float a, float b) { return std::clamp(a * x + b, 0.0F, 1.0F); }},
        {"leakyrelu", [](float x, float a, float) { return x >= 0 ? x : a * x; }},
        {"relu", [](float x, float, float) { return x < 0 ? 0 : x; }},
        {"scaledtanh", [](float x, float a, float b) { return a * std::tanh(b * x); }},
        {"sigmoid", [](float x, float, float) { return 0.5F * (1 + std::tanh(x / 2)); }},
        {"softplus",
         [](float x, float, float) {
             return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
         }},
        {"softsign", [](float x, float, float) { return x / (1 + std::fabs(x)); }},
        {"tanh", [](float x, float, float) { return std::tanh(x); }},
        {"thresholdedrelu", [](float x, float a, float) { return x > a ? x : 0; }},
    };
    return all;
}

// result (rows x columns) = left (rows x depth) * right (columns x depth)^T.
void multiply_transposed(const float *left, Index rows, Index depth, const float *right,
                         Index columns, float *result) {
    constexpr Index kPanel = 48;
    const ConstMatrix a(left, rows, depth, Eigen::OuterStride<>(depth));
    const ConstMatrix b(right, columns, depth, Eigen::OuterStride<>(depth));
    MutableMatrix y(result, rows, columns, Eigen::OuterStride<>(columns));
    const Index panels = (columns + kPanel - 1) / kPanel;
    parallel(panels, 2 * rows * columns * depth, [&](Index first, Index last) {
        const Index begin = first * kPanel, count = std::min(last * kPanel, columns) - begin;
        y.middleCols(begin, count).noalias() = a * b.middleRows(begin, count).transpose();
    });
}

class Recurrent final : public Step {
public:
    Recurrent(const Network &network, const std::vector<std::string> &given, Index length_bytes)
        : Step("recurrent"), network_(network), length_bytes_(length_bytes) {
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
        add_functions();
        width_ = times(gates_, network.units);
        states_ = times(network.batch, network.units);
        add_slots(given);
        const Index every = product({network.batch, width_});
        chunk_ = std::clamp<Index>(kChunkElements / std::max<Index>(every, 1), 1,
                                   std::max<Index>(network.times, 1));
        room_ = times(chunk_, every);
        add_scratch(plus(plus(room_, every), states_));
    }

private:
    static constexpr Index kChunkElements = Index{1} << 20;

    // An activation of one direction's gates.
    struct Applied {
        Function function;
        float alpha, beta;
    };

    // The weights and states of one direction.
    struct Direction {
        const float *w, *r, *bias, *peepholes;
        const Applied *applied;
        float *hidden, *cell, *from_x, *from_h, *reset;
        bool backwards;
    };

    void add_functions() {
        demand(static_cast<Index>(network_.activations.size()) == functions_ * directions_,
               "another number of functions than gates need");
        for (const Activation &one : network_.activations) {
            const auto found = functions().find(one.name);
            if (found == functions().end()) refuse("there is no function " + one.name);
            applied_.push_back({found->second, one.alpha, one.beta});
        }
    }

    void add_slots(const std::vector<std::string> &given) {
        const Index units = network_.units, rows = gates_ + (linear_ ? 1 : 0);
        const Index state = product({directions_, network_.batch, units});
        const Index steps = times(network_.times, network_.batch);
        add_slot("x", VTENSOR_READ, product({network_.times, network_.batch, network_.features}));
        add_slot("w", VTENSOR_READ, product({directions_, width_, network_.features}));
        add_slot("r", VTENSOR_READ, product({directions_, width_, units}));
        std::size_t slot = 3;
        for (const std::string &name : given) {
            demand(slots_of_.emplace(name, slot++).second, "something is given twice");
            if (name == "bias") {
                add_slot("bias", VTENSOR_READ, product({directions_, rows, units}));
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
        results_ = slot;
        add_slot("y", VTENSOR_WRITE, times(steps, times(directions_, units)));
        add_slot("last hidden", VTENSOR_WRITE, state);
        if (lstm_) add_slot("last cell", VTENSOR_WRITE, state);
    }

    // Returns the optional input of this name, or null.
    const void *find(void *const *slots, const char *name) const {
        const auto found = slots_of_.find(name);
        return found == slots_of_.end() ? nullptr : slots[found->second];
    }
    const float *find(void *const *slots, const char *name, Index offset) const {
        const void *found = find(slots, name);
        return found == nullptr ? nullptr : static_cast<const float *>(found) + offset;
    }

    void run(void *const *slots) const override {
        if (states_ == 0) return;
        float *scratch = output(slots, results_ + (lstm_ ? 3 : 2));
        for (Index d = 0; d < directions_; ++d) {
            const Index units = network_.units;
            Direction own{
                .w = input(slots, 1) + d * width_ * network_.features,
                .r = input(slots, 2) + d * width_ * units,
                .bias = find(slots, "bias", d * (gates_ + (linear_ ? 1 : 0)) * units),
                .peepholes = find(slots, "peepholes", d * 3 * units),
                .applied = applied_.data() + d * functions_,
                .hidden = output(slots, results_ + 1) + d * states_,
                .cell = lstm_ ? output(slots, results_ + 2) + d * states_ : nullptr,
                .from_x = scratch,
                .from_h = scratch + room_,
                .reset = scratch + room_ + network_.batch * width_,
                .backwards = d == 1 || network_.direction == "reverse"};
            begin(own.hidden, find(slots, "hidden", d * states_));
            if (lstm_) begin(own.cell, find(slots, "cell", d * states_));
            go_along(own, input(slots, 0), find(slots, "lengths"), d, output(slots, results_));
        }
    }

    void begin(float *state, const float *first) const {
        if (first == nullptr) {
            std::fill_n(state, states_, 0.0F);
        } else {
            std::copy_n(first, states_, state);
        }
    }

    void go_along(const Direction &own, const float *x, const void *lengths, Index d,
                  float *y) const {
        const Index batch = network_.batch, all = network_.times;
        for (Index done = 0; done < all; done += chunk_) {
            const Index count = std::min(chunk_, all - done);
            const Index first = own.backwards ? all - done - count : done;
            multiply_transposed(x + first * batch * network_.features, count * batch,
                                network_.features, own.w, width_, own.from_x);
            for (Index k = 0; k < count; ++k) {
                const Index at = own.backwards ? count - 1 - k : k;
                advance(own, own.from_x + at * batch * width_, lengths, first + at,
                        y + ((first + at) * directions_ + d) * states_);
            }
        }
    }

    // Advances each sequence that has an element at `time`; sets the outputs of the others to 0.
    void advance(const Direction &own, const float *from_x, const void *lengths, Index time,
                 float *y) const {
        const Index batch = network_.batch, units = network_.units;
        const bool twice = !plain_ && !lstm_ && !linear_;  // a GRU, which resets the state first
        const Index at_once = twice ? 2 * units : width_;
        multiply_transposed(own.hidden, batch, units, own.r, at_once, own.from_h);
        if (twice) {
            each_unit([&](Index n, Index u, Index i) {
                float *h = own.from_h + n * at_once;
                const float *x = from_x + n * width_;
                h[u] = apply(own, 0, x[u] + h[u] + bias(own, 0, u));
                const Index at = units + u;
                own.reset[i] = apply(own, 0, x[at] + h[at] + bias(own, 1, u)) * own.hidden[i];
            });
            // The last gate's part from the reset state is stored after the first two gates' parts.
            multiply_transposed(own.reset, batch, units, own.r + 2 * units * units, units,
                                own.from_h + batch * at_once);
        }
        each_unit([&](Index n, Index u, Index i) {
            if (lengths != nullptr && time >= length(lengths, n)) {
                y[i] = 0;
                return;
            }
            const float *x = from_x + n * width_ + u, *h = own.from_h + n * at_once + u;
            if (plain_) {
                own.hidden[i] = apply(own, 0, x[0] + h[0] + bias(own, 0, u));
            } else if (lstm_) {
                remember(own, x, h, u, i);
            } else {
                update(own, x, h, u, i);
            }
            y[i] = own.hidden[i];
        });
    }

    // Computes a unit of an LSTM.
    void remember(const Direction &own, const float *x, const float *h, Index u, Index i) const {
        const Index units = network_.units;
        const auto gate = [&](Index which) {
            return x[which * units] + h[which * units] + bias(own, which, u);
        };
        const auto peephole = [&](Index which, float cell) {
            return own.peepholes == nullptr ? 0 : own.peepholes[which * units + u] * cell;
        };
        const float before = own.cell[i];
        const float in = apply(own, 0, gate(0) + peephole(0, before));
        const float kept =
            network_.coupled ? 1 - in : apply(own, 0, gate(1) + peephole(1, before));
        const float now = kept * before + in * apply(own, 1, gate(2));
        own.cell[i] = now;
        own.hidden[i] = apply(own, 0, gate(3) + peephole(2, now)) * apply(own, 2, now);
    }

    // Computes a unit of a GRU.
    void update(const Direction &own, const float *x, const float *h, Index u, Index i) const {
        const Index units = network_.units;
        const float from_x = x[2 * units] + bias(own, 2, u);
        float old = h[0], hidden = 0;
        if (linear_) {
            old = apply(own, 0, x[0] + h[0] + bias(own, 0, u));
            const float reset = apply(own, 0, x[units] + h[units] + bias(own, 1, u));
            hidden = reset * (h[2 * units] + bias(own, 3, u));
        } else {
            hidden = own.from_h[network_.batch * 2 * units + i];
        }
        const float made = apply(own, 1, from_x + hidden);
        own.hidden[i] = (1 - old) * made + old * own.hidden[i];
    }

    // Calls body(n, unit, position in a state) for each unit.
    template <class Body>
    void each_unit(const Body &body) const {
        parallel(states_, states_ * gates_ * 32, [&](Index begin, Index end) {
            for (Index i = begin; i < end; ++i) body(i / network_.units, i % network_.units, i);
        });
    }

    float bias(const Direction &own, Index row, Index unit) const {
        return own.bias == nullptr ? 0 : own.bias[row * network_.units + unit];
    }

    float apply(const Direction &own, Index which, float x) const {
        const Applied &one = own.applied[which];
        const float most = network_.clip;
        return one.function(network_.limited ? std::clamp(x, -most, most) : x, one.alpha, one.beta);
    }

    Index length(const void *lengths, Index n) const {
        return length_bytes_ == 4 ? static_cast<const std::int32_t *>(lengths)[n]
                                  : static_cast<const std::int64_t *>(lengths)[n];
    }

    Network network_;
    Index length_bytes_;
    std::vector<Applied> applied_;
    std::map<std::string, std::size_t, std::less<>> slots_of_;
    std::size_t results_ = 0;
    bool lstm_ = false, linear_ = false, plain_ = false;
    Index directions_ = 1, gates_ = 1, functions_ = 1;
    Index width_ = 0, states_ = 0, chunk_ = 1, room_ = 0;
};

}  // namespace

Step *recurrent(const Network &network, const std::vector<std::string> &given,
                Index length_bytes) {
    demand(network.times >= 0 && network.batch >= 0 && network.features >= 0 &&
               network.units >= 0 && (!network.limited || network.clip >= 0),
           "a size is negative");
    return new Recurrent(network, given, length_bytes);
}

}  // namespace vtensor::eigen
