// native/winograd/product.h: small products of matrices whose right factor is packed.
#pragma once

#include <algorithm>

#include "vector.h"

namespace vtensor::winograd {

// The outputs that lie together in the packed weights.
constexpr int kPanel = 32;
constexpr int kColumns = 2 * kLanes;
constexpr Index kPanelBytes = kPanel * sizeof(float);

// kRows rows of `left`, `left_step` floats apart, times a panel of `depth` rows: as many columns of
// it as two vectors hold. The sums go to rows `to_step` floats apart.
template <int kRows>
void rows_by_panel(const float *left, Index left_step, const float *panel, Index depth, float *to,
                   Index to_step) {
    Vector sums[kRows][2] = {};
    for (Index k = 0; k < depth; ++k, panel += kPanel) {
        // The weights of a layer are read once a block, from far away: the next panel is on its way
        // while this one is used. It may lie behind the last; nothing is read there.
        if constexpr (kRows > 1) {
            const auto *next = reinterpret_cast<const char *>(panel) + depth * kPanelBytes;
            __builtin_prefetch(next, 0, 2);
            __builtin_prefetch(next + kPanelBytes / 2, 0, 2);
        }
        const Vector first = load(panel), second = load(panel + kLanes);
#pragma GCC unroll 16
        for (int row = 0; row < kRows; ++row) {
            const Vector factor = all(left[row * left_step + k]);
            sums[row][0] += factor * first;
            sums[row][1] += factor * second;
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
        store(to + row * to_step, sums[row][0]);
        store(to + row * to_step + kLanes, sums[row][1]);
    }
}

// Any number of rows times a panel.
inline void by_panel(const float *left, Index left_step, const float *panel, Index rows,
                     Index depth, float *to, Index to_step) {
    using Kernel = void (*)(const float *, Index, const float *, Index, float *, Index);
    static constexpr auto kernels = []<int... kRows>(std::integer_sequence<int, kRows...>) {
        struct Kernels {
            Kernel of[sizeof...(kRows)];
        };
        return Kernels{{&rows_by_panel<kRows + 1>...}};
    }(std::make_integer_sequence<int, kMostRows>{});
    const Index groups = (rows + kMostRows - 1) / kMostRows;  // all of nearly the same number
    for (Index group = 0; group < groups; ++group) {
        const Index begin = rows * group / groups, end = rows * (group + 1) / groups;
        for (int column = 0; column < kPanel; column += kColumns)
            kernels.of[end - begin - 1](left + begin * left_step, left_step, panel + column, depth,
                                        to + begin * to_step + column, to_step);
    }
}

}  // namespace vtensor::winograd
