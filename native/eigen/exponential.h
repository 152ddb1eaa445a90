// native/eigen/exponential.h: the exponential of a float and functions made of it, free of branches,
// for loops.
#pragma once

#include <bit>
#include <cstdint>

#include "loops.h"

namespace vtensor::eigen {

// Evaluates a polynomial; coefficients from the highest power down.
template <class T, class... Rest>
VTENSOR_INLINE T polynomial(T x, T first, Rest... rest) {
    T sum = first;
    ((sum = sum * x + static_cast<T>(rest)), ...);
    return sum;
}

// The parts of an exponential: x = k ln 2 + r, `p` is e^r, and `power` is k. Adding 3/2 * 2^23 to
// x / ln 2 rounds it to k, and leaves k in the sum's lower bits.
struct Halves {
    float p;
    std::int32_t power;
};

VTENSOR_INLINE Halves halves(float x) {
    constexpr float kMagic = 0x1.8p23F;
    const float moved = x * 0x1.715476p0F + kMagic;
    const float k = moved - kMagic;
    const float r = (x - k * 0x1.62E4p-1F) - k * 0x1.7F7D1Cp-20F;
    const float p = polynomial(r, 1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F,
                               4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F);
    return {p * (r * r) + r + 1.0F,
            static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(moved) -
                                      std::bit_cast<std::uint32_t>(kMagic))};
}

VTENSOR_INLINE float two_to(std::int32_t e) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23U);
}

// Returns e^x for x up to 89. 2^k is two factors, so that results below 2^-126 are right, too.
VTENSOR_INLINE float exp_low(float x) {
    const auto [p, power] = halves(x < -104.0F ? -104.0F : x);
    const std::int32_t half = power >> 1;
    return p * two_to(half) * two_to(power - half);
}

// Returns e^x for x up to 0, with 0 for x <= -87: processors are about a hundred times slower for
// subnormal numbers, and masks of -100 make whole rows of them.
VTENSOR_INLINE float exp_weight(float x) {
    const auto [p, power] = halves(x < -87.0F ? -87.0F : x);
    return x < -87.0F ? 0.0F : p * two_to(power);
}

VTENSOR_INLINE float exp(float x) { return exp_low(x > 89.0F ? 89.0F : x); }

// The logistic function.
VTENSOR_INLINE float logistic(float x) {
    const float e = exp(-__builtin_fabsf(x));
    return (x >= 0 ? 1.0F : e) / (1.0F + e);
}

// The hyperbolic tangent, with Cephes' polynomial; near 0 for t from 0 to 0.625.
VTENSOR_INLINE float tanh_near(float t) {
    const float s = t * t;
    const float near = polynomial(s, -5.70498872745e-3F, 2.06390887954e-2F, -5.37397155531e-2F,
                                  1.33314422036e-1F, -3.33332819422e-1F);
    return near * s * t + t;
}
VTENSOR_INLINE float tanh(float x) {
    const float t = __builtin_fabsf(x), far = 1.0F - 2.0F / (exp(t + t) + 1.0F);
    return __builtin_copysignf(t > 0.625F ? far : tanh_near(t), x);
}

}  // namespace vtensor::eigen
