// native/eigen/check.h: checked arithmetic on sizes from outside: overflow throws.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include "step.h"

namespace vtensor::eigen {

[[noreturn]] inline void refuse(const std::string &what) { throw std::invalid_argument(what); }

inline void demand(bool holds, const char *what) {
    if (!holds) refuse(what);
}

inline Index plus(Index a, Index b) {
    Index sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) refuse("sizes overflow");
    return sum;
}

inline Index times(Index a, Index b) {
    Index product = 0;
    if (__builtin_mul_overflow(a, b, &product)) refuse("sizes overflow");
    return product;
}

inline Index product(const Ints &sizes) {
    Index all = 1;
    for (const Index size : sizes) {
        demand(size >= 0, "a size is negative");
        all = times(all, size);
    }
    return all;
}

// Returns one past the largest offset that indices below `shape` reach; strides are not negative.
inline Index reach(const Ints &shape, const Ints &strides, Index offset = 0) {
    demand(shape.size() == strides.size(), "shape and strides differ in rank");
    demand(offset >= 0, "an offset is negative");
    Index last = offset;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        demand(strides[i] >= 0, "a stride is negative");
        last = plus(last, times(std::max<Index>(shape[i], 1) - 1, strides[i]));
    }
    return product(shape) == 0 ? 0 : plus(last, 1);
}

}  // namespace vtensor::eigen
