// native/eigen/loops.h: loops over a tile, which compilers turn into vector instructions.
#pragma once

#include "functions.h"

// Functions that loops call must be inlined: compilers do not vectorise a loop with calls.
#define VTENSOR_INLINE [[gnu::always_inline]] inline

namespace vtensor::eigen {

// Applies a function to every element; From and To are float or std::int64_t.
template <class To, class From, auto kFunction>
void each(const void *a, const void *, const void *, void *y, Index n) {
    const auto *first = static_cast<const From *>(a);
    auto *result = static_cast<To *>(y);
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) result[i] = kFunction(first[i]);
}

template <class To, class From, auto kFunction>
void each_pair(const void *a, const void *b, const void *, void *y, Index n) {
    const auto *first = static_cast<const From *>(a);
    const auto *second = static_cast<const From *>(b);
    auto *result = static_cast<To *>(y);
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) result[i] = kFunction(first[i], second[i]);
}

// Writes the element of a where the condition c, a float, is not 0, else that of b.
template <class T>
void each_select(const void *c, const void *a, const void *b, void *y, Index n) {
    const auto *condition = static_cast<const float *>(c);
    const auto *first = static_cast<const T *>(a);
    const auto *second = static_cast<const T *>(b);
    auto *result = static_cast<T *>(y);
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) {
        const T one = first[i], other = second[i];
        result[i] = condition[i] != 0 ? one : other;
    }
}

template <class T>
constexpr Kind kKind = sizeof(T) == 4 ? Kind::kFloat : Kind::kInteger;

template <class To, class From, auto kFunction>
constexpr Function one(const char *name) {
    return {name, 1, {kKind<From>, kKind<From>, kKind<From>}, kKind<To>, each<To, From, kFunction>};
}

template <class To, class From, auto kFunction>
constexpr Function two(const char *name) {
    return {name, 2, {kKind<From>, kKind<From>, kKind<From>}, kKind<To>,
            each_pair<To, From, kFunction>};
}

template <class T>
constexpr Function selection(const char *name) {
    return {name, 3, {Kind::kFloat, kKind<T>, kKind<T>}, kKind<T>, each_select<T>};
}

}  // namespace vtensor::eigen
