// native/eigen/convert.h: conversion between elements of any type and the types that kernels
// compute with.
#pragma once

#include <Eigen/Core>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "check.h"
#include "step.h"

namespace vtensor::eigen {

// Returns `count` elements of src from index `from` on, `step` apart: in place if possible, else
// converted into the tile.
template <class A>
using Load = const A *(*)(const void *src, Index from, Index step, Index count, A *tile);
// Stores `count` values as elements of dst from index `to` on, `step` apart; integers wrap.
template <class A>
using Store = void (*)(void *dst, Index to, Index step, Index count, const A *values);

template <class T, class A>
const A *load(const void *src, Index from, Index step, Index count, A *tile) {
    const T *first = static_cast<const T *>(src) + from;
    if (step == 1) {
        if constexpr (std::is_same_v<T, A>) {
            return first;
        } else {
            using Source = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
            using Tile = Eigen::Map<Eigen::Array<A, Eigen::Dynamic, 1>>;
            Tile(tile, count) = Source(first, count).template cast<A>();
            return tile;
        }
    }
    if (step == 0) {
        std::fill_n(tile, count, static_cast<A>(*first));
    } else {
        for (Index i = 0; i < count; ++i) tile[i] = static_cast<A>(first[i * step]);
    }
    return tile;
}

template <class T, class A>
void store(void *dst, Index to, Index step, Index count, const A *values) {
    T *first = static_cast<T *>(dst) + to;
    for (Index i = 0; i < count; ++i) first[i * step] = static_cast<T>(values[i]);
}

// The conversions of an element type; values are computed as A, and their totals as W.
template <class A, class W>
struct Element {
    const char *name;
    std::uint32_t bytes;
    Load<A> load;
    Store<W> store;
};

template <class T, class A, class W>
constexpr Element<A, W> element(const char *name) {
    return {name, sizeof(T), &load<T, A>, &store<T, W>};
}

}  // namespace vtensor::eigen
