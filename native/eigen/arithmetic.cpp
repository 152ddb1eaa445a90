// native/eigen/arithmetic.cpp: functions of floats with a single rounding.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "loops.h"
#include "narrow_types.h"

namespace vtensor::eigen {

namespace {

float add(float a, float b) { return a + b; }
float sub(float a, float b) { return a - b; }
float mul(float a, float b) { return a * b; }
float div(float a, float b) { return a / b; }
float neg(float a) { return -a; }
float abs(float a) { return __builtin_fabsf(a); }
float copy(float a) { return a; }
float sqrt(float a) { return __builtin_sqrtf(a); }
float floor(float a) { return __builtin_floorf(a); }
float ceil(float a) { return __builtin_ceilf(a); }
float trunc(float a) { return __builtin_truncf(a); }
float round(float a) { return __builtin_rintf(a); }

// Returns NaN if an argument is NaN: a comparison with NaN is false, which chooses b.
float max(float a, float b) {
    const float larger = a > b ? a : b;
    return a != a ? a : larger;
}
float min(float a, float b) {
    const float smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

// NaN for NaN, and 0 for -0.
float sign(float a) {
    const float size = a > 0 ? 1.0F : a < 0 ? -1.0F : 0.0F;
    return a != a ? a : size;
}

float fmod(float a, float b) { return std::fmod(a, b); }
float mod(float a, float b) {
    const float rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(0.0F, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

float truth(bool holds) { return holds ? 1.0F : 0.0F; }
float eq(float a, float b) { return truth(a == b); }
float lt(float a, float b) { return truth(a < b); }
float le(float a, float b) { return truth(a <= b); }
float isnan(float a) { return truth(a != a); }
float isinf(float a) { return truth(abs(a) == std::numeric_limits<float>::infinity()); }
float to_bool(float a) { return truth(a != 0); }

// Logical AND and OR of truth values.
float both(float a, float b) { return a * b; }
float either(float a, float b) { return a > b ? a : b; }
float differ(float a, float b) { return truth(a != b); }
float invert(float a) { return 1.0F - a; }

// Returns the integral part, saturated to T's range; 0 for NaN.
template <class T>
std::int64_t to_integer(float a) {
    constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
    constexpr float kLow = kLeast, kEnd = 2 * static_cast<float>(kMost / 2 + 1);  // both exact
    const float raised = a >= kLow ? a : kLow;
    return a >= kEnd ? kMost : static_cast<std::int64_t>(a < kEnd ? raised : 0.0F);
}

// The same as a float, for T that floats hold exactly; never -0.
template <class T>
float to_whole(float a) {
    constexpr float kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
    float bounded = a == a ? a : 0.0F;
    bounded = bounded > kLow ? bounded : kLow;
    bounded = bounded < kHigh ? bounded : kHigh;
    return __builtin_truncf(bounded) + 0.0F;
}

// Rounds to the 8 significant bits of bf16, ties to even.
float to_bf16(float a) {
    const auto bits = std::bit_cast<std::uint32_t>(a);
    const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16U & 1U)) & 0xFFFF0000U;
    return a != a ? a : std::bit_cast<float>(rounded);
}

float to_f16(float a) { return static_cast<float>(static_cast<_Float16>(a)); }

using Integer = std::int64_t;

// Returns the integral part's lower bits, as a T; of large floats, these are 0.
template <class T>
Integer to_narrow(float a) {
    return stored<T, Integer>(abs(a) < 0x1p31F ? static_cast<Integer>(a) : 0);
}

constexpr Function kTable[]{
    two<float, float, add>("add f32"),
    two<float, float, sub>("sub f32"),
    two<float, float, mul>("mul f32"),
    two<float, float, div>("div f32"),
    two<float, float, max>("max f32"),
    two<float, float, min>("min f32"),
    two<float, float, mod>("mod f32"),
    two<float, float, fmod>("fmod f32"),
    two<float, float, eq>("eq f32"),
    two<float, float, lt>("lt f32"),
    two<float, float, le>("le f32"),
    two<float, float, both>("and f32"),
    two<float, float, either>("or f32"),
    two<float, float, differ>("xor f32"),
    one<float, float, invert>("not f32"),
    one<float, float, neg>("neg f32"),
    one<float, float, abs>("abs f32"),
    one<float, float, sign>("sign f32"),
    one<float, float, sqrt>("sqrt f32"),
    one<float, float, floor>("floor f32"),
    one<float, float, ceil>("ceil f32"),
    one<float, float, trunc>("trunc f32"),
    one<float, float, round>("round f32"),
    one<float, float, isnan>("isnan f32"),
    one<float, float, isinf>("isinf f32"),
    one<float, float, copy>("copy f32"),
    one<float, float, to_bool>("to_bool f32"),
    one<float, float, to_bf16>("to_bf16 f32"),
    one<float, float, to_f16>("to_f16 f32"),
    one<float, float, stored<F8e4m3fn, float>>("to_f8e4m3fn f32"),
    one<float, float, stored<F8e4m3fnuz, float>>("to_f8e4m3fnuz f32"),
    one<float, float, stored<F8e5m2, float>>("to_f8e5m2 f32"),
    one<float, float, stored<F8e5m2fnuz, float>>("to_f8e5m2fnuz f32"),
    one<float, float, stored<F6e2m3, float>>("to_f6e2m3 f32"),
    one<float, float, stored<F6e3m2, float>>("to_f6e3m2 f32"),
    one<float, float, stored<F4e2m1, float>>("to_f4e2m1 f32"),
    one<Integer, float, to_integer<std::int64_t>>("to_s64 f32"),
    one<Integer, float, to_integer<std::int32_t>>("to_s32 f32"),
    one<Integer, float, to_integer<std::int16_t>>("to_s16 f32"),
    one<Integer, float, to_integer<std::int8_t>>("to_s8 f32"),
    one<Integer, float, to_integer<std::uint32_t>>("to_u32 f32"),
    one<Integer, float, to_integer<std::uint16_t>>("to_u16 f32"),
    one<Integer, float, to_integer<std::uint8_t>>("to_u8 f32"),
    one<float, float, to_whole<std::int16_t>>("to_s16_f32 f32"),
    one<float, float, to_whole<std::int8_t>>("to_s8_f32 f32"),
    one<float, float, to_whole<std::uint16_t>>("to_u16_f32 f32"),
    one<float, float, to_whole<std::uint8_t>>("to_u8_f32 f32"),
    one<Integer, float, to_narrow<S4>>("to_s4 f32"),
    one<Integer, float, to_narrow<U4>>("to_u4 f32"),
    one<Integer, float, to_narrow<S2>>("to_s2 f32"),
    one<Integer, float, to_narrow<U2>>("to_u2 f32"),
    selection<float>("select f32"),
};

}  // namespace

std::span<const Function> arithmetic() { return kTable; }

}  // namespace vtensor::eigen
