// native/eigen/recurrent.cpp: recurrent networks.
//
// The sequence's part of the gates' inputs is one product for many time steps; the state's part is
// a product per time step.
#include "recurrent.h"

#include <algorithm>

#include "matrix.h"
#include "recurrence.h"

namespace vtensor::eigen {

namespace {

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

class Recurrent final : public Recurrence {
public:
    Recurrent(const Network &network, const std::vector<std::string> &given, Index length_bytes)
        : Recurrence("recurrent", network, length_bytes) {
        add_slot("x", VTENSOR_READ, product({network.times, network.batch, network.features}));
        add_slot("w", VTENSOR_READ, product({directions_, width_, network.features}));
        add_slot("r", VTENSOR_READ, product({directions_, width_, network.units}));
        add_states(given, 3);
        const Index every = product({network.batch, width_});
        chunk_ = std::clamp<Index>(kChunkElements / std::max<Index>(every, 1), 1,
                                   std::max<Index>(network.times, 1));
        room_ = times(chunk_, every);
        add_scratch(plus(plus(room_, every), states_));
    }

private:
    static constexpr Index kChunkElements = Index{1} << 20;

    // The weights and states of one direction.
    struct Direction {
        const float *w, *r;
        Cell gates;
        float *hidden, *cell, *from_x, *from_h, *reset;
        bool backwards;
    };

    void run(void *const *slots) const override {
        if (states_ == 0) return;
        float *from_x = scratch(slots), *from_h = from_x + room_;
        for (Index d = 0; d < directions_; ++d) {
            const Direction own{
                .w = input(slots, 1) + d * width_ * network_.features,
                .r = input(slots, 2) + d * width_ * network_.units,
                .gates = cell_of(slots, d),
                .hidden = begin(slots, d, "hidden"),
                .cell = lstm_ ? begin(slots, d, "cell") : nullptr,
                .from_x = from_x,
                .from_h = from_h,
                .reset = from_h + network_.batch * width_,
                .backwards = backwards(d)};
            go_along(own, input(slots, 0), find(slots, "lengths"), d, y(slots));
        }
    }

    void go_along(const Direction &own, const float *x, const void *lengths, Index d,
                  float *y) const {
        const Index batch = network_.batch, all = longest(lengths);
        for (Index time = all; time < network_.times; ++time)
            std::fill_n(y + (time * directions_ + d) * states_, states_, 0.0F);
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

    // The number of time steps after which no sequence has an element.
    Index longest(const void *lengths) const {
        if (lengths == nullptr) return network_.times;
        Index most = 0;
        for (Index n = 0; n < network_.batch; ++n) most = std::max(most, length(lengths, n));
        return std::min(most, network_.times);
    }

    // Whether sequence n has an element at `time`.
    bool lives(const void *lengths, Index n, Index time) const {
        return lengths == nullptr || time < length(lengths, n);
    }

    // result (batch x columns) = state (batch x units) * r (columns x units)^T, of the sequences
    // that have an element at `time`. Few of them are multiplied one by one: to order `r` for a
    // product of matrices would take longer than the product.
    void multiply_state(const float *state, const float *r, Index columns, float *result,
                        const void *lengths, Index time) const {
        constexpr Index kFew = 4;
        const Index batch = network_.batch, units = network_.units;
        Index living = 0;
        for (Index n = 0; n < batch; ++n) living += lives(lengths, n, time);
        if (living > kFew) return multiply_transposed(state, batch, units, r, columns, result);
        for (Index n = 0; n < batch; ++n)
            if (lives(lengths, n, time))
                multiply_transposed(state + n * units, 1, units, r, columns, result + n * columns);
    }

    // Advances each sequence that has an element at `time`; sets the outputs of the others to 0.
    void advance(const Direction &own, const float *from_x, const void *lengths, Index time,
                 float *y) const {
        const Index batch = network_.batch, units = network_.units;
        const bool twice = !plain_ && !lstm_ && !linear_;  // a GRU, which resets the state first
        const Index at_once = twice ? 2 * units : width_;
        multiply_state(own.hidden, own.r, at_once, own.from_h, lengths, time);
        if (twice) {
            each_part([&](Index n, Index begin, Index end) {
                if (!lives(lengths, n, time)) return;
                float *h = own.from_h + n * at_once, *reset = h + units;
                add_parts(own, h, from_x + n * width_, 0, begin, end);
                add_parts(own, reset, from_x + n * width_ + units, 1, begin, end);
                own.gates.apply(0, h + begin, end - begin);
                own.gates.apply(0, reset + begin, end - begin);
                const Index at = n * units;
                for (Index u = begin; u < end; ++u)
                    own.reset[at + u] = reset[u] * own.hidden[at + u];
            });
            // The last gate's part from the reset state is stored after the first two gates' parts.
            multiply_state(own.reset, own.r + 2 * units * units, units,
                           own.from_h + batch * at_once, lengths, time);
        }
        each_part([&](Index n, Index begin, Index end) {
            float *hidden = own.hidden + n * units, *made = y + n * units;
            if (!lives(lengths, n, time)) {
                std::fill(made + begin, made + end, 0.0F);
                return;
            }
            const float *x = from_x + n * width_;
            float *h = own.from_h + n * at_once;
            if (plain_) {
                add_parts(own, h, x, 0, begin, end);
                own.gates.apply(0, h + begin, end - begin);
                std::copy(h + begin, h + end, hidden + begin);
            } else if (lstm_) {
                for (Index gate = 0; gate < 4; ++gate)
                    for (Index u = begin; u < end; ++u) h[gate * units + u] += x[gate * units + u];
                own.gates.remember(h, begin, end, own.cell + n * units, hidden);
            } else {
                float *last = linear_ ? h + 2 * units : own.from_h + batch * at_once + n * units;
                update(own, x, h, last, hidden, begin, end);
            }
            std::copy(hidden + begin, hidden + end, made + begin);
        });
    }

    // sum += x + the bias of a row, for units begin to end.
    static void add_parts(const Direction &own, float *sum, const float *x, Index row, Index begin,
                          Index end) {
        for (Index u = begin; u < end; ++u) sum[u] += x[u];
        own.gates.add_bias(sum, row, begin, end);
    }

    // Computes units of a GRU. `last` holds the last gate's part from the state, `h` the others'.
    void update(const Direction &own, const float *x, float *h, float *last, float *hidden,
                Index begin, Index end) const {
        const Index units = network_.units;
        if (linear_) {
            float *reset = h + units;
            add_parts(own, h, x, 0, begin, end);
            add_parts(own, reset, x + units, 1, begin, end);
            own.gates.apply(0, h + begin, end - begin);
            own.gates.apply(0, reset + begin, end - begin);
            own.gates.add_bias(last, 3, begin, end);
            for (Index u = begin; u < end; ++u) last[u] *= reset[u];
        }
        add_parts(own, last, x + 2 * units, 2, begin, end);
        own.gates.apply(1, last + begin, end - begin);
        for (Index u = begin; u < end; ++u) hidden[u] = (1 - h[u]) * last[u] + h[u] * hidden[u];
    }

    // Calls body(n, begin, end) for parts of the units of each sequence n.
    template <class Body>
    void each_part(const Body &body) const {
        const Index units = network_.units;
        parallel(states_, states_ * gates_ * 8, [&](Index first, Index last) {
            for (Index i = first; i < last;) {
                const Index n = i / units, end = std::min(last, (n + 1) * units);
                body(n, i - n * units, end - n * units);
                i = end;
            }
        });
    }

    Index chunk_, room_;
};

}  // namespace

Step *recurrent(const Network &network, const std::vector<std::string> &given,
                Index length_bytes) {
    return new Recurrent(network, given, length_bytes);
}

}  // namespace vtensor::eigen
