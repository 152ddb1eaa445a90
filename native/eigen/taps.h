// native/eigen/taps.h: values of an image between its elements, as weighted sums of neighbours.
#pragma once

#include <array>
#include <cmath>

#include "step.h"

namespace vtensor::eigen {

// A neighbour along one dim: its index and weight.
struct Near {
    Index at;
    float weight;
};

// Returns the weight of a neighbour by its distance: 0 from 1 on, NaN for NaN.
inline float linear(double distance) {
    const auto weight = static_cast<float>(1 - std::fabs(distance));
    return weight < 0 ? 0 : weight;
}

// Returns the index in a dim nearest to a position; 0 for NaN.
inline Index nearest(double at, Index size) {
    if (!(at > 0)) return 0;
    const Index last = size - 1;
    return at >= static_cast<double>(last) ? last : static_cast<Index>(at);
}

// The neighbours of up to kChunk positions: offset in a layer, and weight.
class Taps {
public:
    static constexpr Index kChunk = 32, kMost = 64;

    // Starts a position with one neighbour: the layer's first element, with weight 1.
    void begin(Index place) {
        offsets_[0][place] = 0;
        weights_[0][place] = 1;
    }

    // Replaces each of the `count` neighbours of a position by `many`: those of one more dim, whose
    // elements are `stride` apart.
    void spread(Index place, Index count, const Near *near, Index many, Index stride) {
        for (Index t = many; t-- > 0;)
            for (Index k = 0; k < count; ++k) {
                offsets_[t * count + k][place] = offsets_[k][place] + near[t].at * stride;
                weights_[t * count + k][place] = weights_[k][place] * near[t].weight;
            }
    }

    // Computes the sums of `taps` neighbours in a layer, for the first `count` positions. Usual
    // numbers of taps are compile-time constants, so that sums stay in registers.
    template <class From, class To>
    void sum(const From *layer, Index taps, To *dst, Index count) const {
        switch (taps) {
            case 1: return sum_of<1>(layer, taps, dst, count);
            case 2: return sum_of<2>(layer, taps, dst, count);
            case 4: return sum_of<4>(layer, taps, dst, count);
            case 8: return sum_of<8>(layer, taps, dst, count);
            case 16: return sum_of<16>(layer, taps, dst, count);
            default: return sum_of<0>(layer, taps, dst, count);
        }
    }

private:
    // Computes the sums of `Known` neighbours; 0: of `taps` neighbours.
    template <Index Known, class From, class To>
    void sum_of(const From *layer, Index taps, To *dst, Index count) const {
        for (Index p = 0; p < count; ++p) {
            float sum = 0;
            for (Index tap = 0; tap < (Known ? Known : taps); ++tap)
                sum += static_cast<float>(layer[offsets_[tap][p]]) * weights_[tap][p];
            dst[p] = static_cast<To>(sum);
        }
    }

    std::array<std::array<Index, kChunk>, kMost> offsets_;
    std::array<std::array<float, kChunk>, kMost> weights_;
};

}  // namespace vtensor::eigen
