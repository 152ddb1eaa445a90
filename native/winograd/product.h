// native/winograd/product.h: small products of matrices whose right factor is packed.
#pragma once

#include <algorithm>

#include "vector.h"

namespace vtensor::winograd {

// The outputs that lie together in the packed weights.
constexpr int kPanel = 32;
constexpr int kColumns = 2 * kLanes;
constexpr Index kPanelBytes = kPanel * sizeof(float);

// Memory that is fetched while a product is computed, so many bytes for each row of its panel.
struct Ahead {
    const char *from;
    Index step;
};

// The left factor: rows so many floats apart, whose elements lie in parts of so many, these so many
// floats apart.
struct Left {
    const float *from;
    Index row, part, jump;
};

// kRows rows of `left` times a panel of `depth` rows: as many columns of it as two vectors hold.
// take.column(row, column) says what becomes of the sums from there on, both numbered as in the
// whole: it is called with the number of rows further down, and a vector.
template <int kRows, class Take>
void rows_by_panel(Left left, const float *panel, Index depth, Ahead ahead, Index first_row,
                   Index first_column, const Take &take) {
    Vector sums[kRows][2] = {};
    for (; depth > 0; depth -= left.part, left.from += left.jump) {
        const Index count = std::min(depth, left.part);
        for (Index k = 0; k < count; ++k, panel += kPanel, ahead.from += ahead.step) {
            __builtin_prefetch(ahead.from, 0, 2);
            __builtin_prefetch(ahead.from + ahead.step / 2, 0, 2);
            const Vector first = load(panel), second = load(panel + kLanes);
#pragma GCC unroll 16
            for (int row = 0; row < kRows; ++row) {
                const Vector factor = all(left.from[row * left.row + k]);
                sums[row][0] += factor * first;
                sums[row][1] += factor * second;
            }
        }
    }
    const auto one = take.column(first_row, first_column);
    const auto other = take.column(first_row, first_column + kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kRows; ++row) {
        one(row, sums[row][0]);
        other(row, sums[row][1]);
    }
}

// Any number of rows times a panel; take gets all sums.
//
// The weights of a layer are read once a block, from far away: the next panel is on its way while
// this one is used, a little in each pass, so that memory is asked evenly. It may lie behind the
// last; nothing is read there.
template <class Take>
void by_panel(const Left &left, const float *panel, Index rows, Index depth, const Take &take) {
    using Kernel = void (*)(Left, const float *, Index, Ahead, Index, Index, const Take &);
    static constexpr auto kernels = []<int... kRows>(std::integer_sequence<int, kRows...>) {
        struct Kernels {
            Kernel of[sizeof...(kRows)];
        };
        return Kernels{{&rows_by_panel<kRows + 1, Take>...}};
    }(std::make_integer_sequence<int, kMostRows>{});
    if (rows == 0) return;  // a thread's last block, where its neighbour has a tile more
    const Index groups = (rows + kMostRows - 1) / kMostRows;  // all of nearly the same number
    const Index passes = groups * (kPanel / kColumns), bytes = depth * kPanelBytes;
    Ahead ahead{reinterpret_cast<const char *>(panel) + bytes, kPanelBytes / passes};
    for (Index group = 0, begin = 0, end = 0; group < groups; ++group, begin = end) {
        end = rows * (group + 1) / groups;
        for (int column = 0; column < kPanel; column += kColumns, ahead.from += bytes / passes)
            kernels.of[end - begin - 1](
                {left.from + begin * left.row, left.row, left.part, left.jump}, panel + column,
                depth, ahead, begin, column, take);
    }
}

// Panels that lie near, one product after another, each with a left factor and sums of its own.
// They all pass for a few rows at a time, and nothing is fetched ahead: a call for each would take
// nearly half of the time of shallow products.
struct Near {
    const float *left;
    Index left_row, left_step;  // floats from one row to the next, and from one factor
    const float *weights;
    Index depth, panels;  // of a panel, and panels of a product
    float *sums;
    Index sums_row, sums_step;
};

template <int kRows>
void rows_by_near_panels(const Near &near, Index first_row, Index begin, Index end) {
    const Index row = near.left_row, sums_row = near.sums_row, depth = near.depth;
    const float *weights = near.weights + begin * depth * kPanel;
    Index panel = begin % near.panels;
    const float *left = near.left + begin / near.panels * near.left_step + first_row * row;
    float *to = near.sums + begin / near.panels * near.sums_step + first_row * sums_row;
    for (Index piece = begin; piece < end; ++piece) {
        for (int column = 0; column < kPanel; column += kColumns) {
            Vector sums[kRows][2] = {};
            const float *own = weights + column;
            for (Index k = 0; k < depth; ++k, own += kPanel) {
                const Vector first = load(own), second = load(own + kLanes);
#pragma GCC unroll 16
                for (int i = 0; i < kRows; ++i) {
                    const Vector factor = all(left[i * row + k]);
                    sums[i][0] += factor * first;
                    sums[i][1] += factor * second;
                }
            }
            float *put = to + panel * kPanel + column;
#pragma GCC unroll 16
            for (int i = 0; i < kRows; ++i) {
                store(put + i * sums_row, sums[i][0]);
                store(put + i * sums_row + kLanes, sums[i][1]);
            }
        }
        weights += depth * kPanel;
        if (++panel == near.panels) {
            panel = 0;
            left += near.left_step;
            to += near.sums_step;
        }
    }
}

// So many rows times those panels from begin up to, without, end.
inline void by_near_panels(const Near &near, Index rows, Index begin, Index end) {
    using Kernel = void (*)(const Near &, Index, Index, Index);
    static constexpr auto kernels = []<int... kRows>(std::integer_sequence<int, kRows...>) {
        struct Kernels {
            Kernel of[sizeof...(kRows)];
        };
        return Kernels{{&rows_by_near_panels<kRows + 1>...}};
    }(std::make_integer_sequence<int, kMostRows>{});
    const Index groups = (rows + kMostRows - 1) / kMostRows;
    for (Index group = 0, first = 0, next = 0; group < groups; ++group, first = next) {
        next = rows * (group + 1) / groups;
        kernels.of[next - first - 1](near, first, begin, end);
    }
}

}  // namespace vtensor::winograd
