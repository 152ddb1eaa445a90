// native/winograd/vector.h: vectors of the instruction set that this file is compiled for.
#pragma once

#include <cstdint>
#include <utility>

namespace vtensor::winograd {

using Index = std::int64_t;

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kMostRows = 14;  // by two vectors: 28 sums in 32 registers
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kMostRows = 6;  // 12 sums in 16 registers
#else
constexpr int kLanes = 4;
constexpr int kMostRows = 5;
#endif

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));
// A vector at any address.
using Loose = float
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

[[gnu::always_inline]] inline Vector load(const float *from) {
    return *reinterpret_cast<const Loose *>(from);
}
[[gnu::always_inline]] inline void store(float *to, Vector value) {
    *reinterpret_cast<Loose *>(to) = value;
}
// Returns a vector with this value in all lanes. Each lane is listed: 0 + value would be computed,
// since it differs from value for -0.
[[gnu::always_inline]] inline Vector all(float value) {
    return [value]<int... kLane>(std::integer_sequence<int, kLane...>)
        __attribute__((always_inline)) { return Vector{(static_cast<void>(kLane), value)...}; }
    (std::make_integer_sequence<int, kLanes>{});
}

// Calls body(0), ..., body(kCount - 1) with constant arguments.
template <int kCount, class Body>
[[gnu::always_inline]] inline void each(const Body &body) {
    [&]<int... kNumbers>(std::integer_sequence<int, kNumbers...>) __attribute__((always_inline)) {
        (body(std::integral_constant<int, kNumbers>{}), ...);
    }(std::make_integer_sequence<int, kCount>{});
}

}  // namespace vtensor::winograd
