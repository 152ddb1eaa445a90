// native/winograd/ending.h: additions and bounds applied to results before they are stored.
#pragma once

#include <algorithm>
#include <cstring>

#include "vector.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace vtensor::winograd {

#if defined(__AVX512F__)
// Returns a mask of the first lanes; AVX2's masked stores are slow on some machines.
[[gnu::always_inline]] inline __mmask16 first_of(Index lanes) {
    return static_cast<__mmask16>((1U << static_cast<unsigned>(lanes)) - 1U);
}
#endif

// Loads the first lanes from memory; the others are 0.
[[gnu::always_inline]] inline Vector some(const float *from, Index lanes) {
    if (lanes == kLanes) return load(from);
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_ps(first_of(lanes), from);
#endif
    Vector value{};
    std::memcpy(&value, from, static_cast<std::size_t>(lanes) * sizeof(float));
    return value;
}

// Stores `stored` lanes, with zeros from lane `there` on.
[[gnu::always_inline]] inline void put(float *to, const Vector &value, Index there, Index stored) {
    if (there == kLanes) return store(to, value);
#if defined(__AVX512F__)
    return _mm512_mask_storeu_ps(to, first_of(stored), _mm512_maskz_mov_ps(first_of(there), value));
#endif
    Vector whole{};
    std::memcpy(&whole, &value, static_cast<std::size_t>(there) * sizeof(float));
    std::memcpy(to, &whole, static_cast<std::size_t>(stored) * sizeof(float));
}

// Adds the operand `other` to results, if there is one, then applies bounds; NaN stays NaN.
struct Ending {
    float low, high;

    [[gnu::always_inline]] void operator()(Vector value, const float *other, float *to, Index there,
                                           Index stored) const {
        if (other != nullptr) value += some(other, stored);
        value = value < low ? all(low) : value;
        put(to, value > high ? all(high) : value, there, stored);
    }
};

}  // namespace vtensor::winograd
