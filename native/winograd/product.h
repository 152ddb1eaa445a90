// native/winograd/product.h: small products of matrices with a packed right factor.
#pragma once

#include <algorithm>

#include "vector.h"

namespace vtensor::winograd {

// Outputs of a panel of packed weights.
constexpr int kPanel = 32;
constexpr int kColumns = 2 * kLanes;
constexpr Index kPanelBytes = kPanel * sizeof(float);

// Memory that is prefetched while a product is computed: `step` bytes for each row of its panel.
struct Ahead {
    const char *from;
    Index step;
};

// The left factor. Its rows are `row` floats apart. The elements of a row come in parts of `part`
// elements; parts begin `jump` floats apart.
struct Left {
    const float *from;
    Index row, part, jump;
};

// Multiplies kRows rows of `left` by as many columns of a panel of `depth` rows as two vectors
// hold. take.column(row, column) returns the destination of the sums from this row and column of
// the whole product on: a function of a row's number, counted from `row`, and of a vector of sums.
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

// Multiplies any number of rows by a panel; `take` gets all sums.
//
// The weights of a layer are read once per block, from memory: the next panel is prefetched while
// this one is used, a little in each pass, so that memory traffic is even. The next panel may be
// past the last one; nothing is read there.
template <class Take>
void by_panel(const Left &left, const float *panel, Index rows, Index depth, const Take &take) {
    using Kernel = void (*)(Left, const float *, Index, Ahead, Index, Index, const Take &);
    static constexpr auto kernels = []<int... kRows>(std::integer_sequence<int, kRows...>) {
        struct Kernels {
            Kernel of[sizeof...(kRows)];
        };
        return Kernels{{&rows_by_panel<kRows + 1, Take>...}};
    }(std::make_integer_sequence<int, kMostRows>{});
    if (rows == 0) return;  // a thread may have a tile less than others
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

// Panels in a cache, one product after another, each with a left factor and sums of its own. All of
// them are used for a few rows at a time, and nothing is prefetched: a call per panel would take
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

// Multiplies rows by the panels begin .. end (exclusive).
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
