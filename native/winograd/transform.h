// native/winograd/transform.h: the transforms of a tile, for a vector of channels.
//
// Each point comes with its negative: their rows have equal even halves and opposite odd halves, so
// that each half is computed once.
#pragma once

#include "tables.h"
#include "vector.h"

namespace vtensor::winograd {

// F(kResults, kTaps) along one dim.
template <int kResults_, int kTaps_>
struct Form {
    static constexpr int kResults = kResults_, kTaps = kTaps_, kProducts = kResults + kTaps - 1;
    using Numbers = Tables<kResults, kTaps>;
};

// The form of a dim along which the filter has one element: no transform.
template <>
struct Form<1, 1> {
    static constexpr int kResults = 1, kTaps = 1, kProducts = 1;
};

// A row of B^T; and a row of A^T, in which points come in pairs p, -p: ResultRow::at(pair) is the
// entry at the positive point of a pair.
template <class F, int kRow>
struct SourceRow {
    static constexpr float at(int j) { return F::Numbers::kSource[kRow][j]; }
};
template <class F, int kRow>
struct ResultRow {
    static constexpr float at(int pair) { return F::Numbers::kResult[kRow][2 * pair + 1]; }
};

// Returns the sum of Row::at(j) * values[j] over the j from kFirst on, kStep apart, with Row::at(j)
// not 0.
template <class Row, int kFirst, int kStep, int kEnd>
[[gnu::always_inline]] inline Vector sum(const Vector *values) {
    Vector total{};
    bool begun = false;  // a compile-time value
    each<kEnd>([&](auto j) __attribute__((always_inline)) {
        constexpr int at = j;
        if constexpr (at >= kFirst && (at - kFirst) % kStep == 0) {
            constexpr float factor = Row::at(at);
            if constexpr (factor != 0) {
                const Vector term = factor == 1 ? values[at] : values[at] * factor;
                total = begun ? total + term : term;
                begun = true;
            }
        }
    });
    return total;
}

// B^T d: `d` and `to` have kProducts vectors.
template <class F>
[[gnu::always_inline]] inline void to_products(const Vector *d, Vector *to) {
    if constexpr (F::kProducts == 1) {
        to[0] = d[0];
    } else {
        constexpr int n = F::kProducts;
        to[0] = sum<SourceRow<F, 0>, 0, 2, n>(d);
        each<(n - 2) / 2>([&](auto pair) __attribute__((always_inline)) {
            constexpr int row = 2 * pair + 1;
            const Vector even = sum<SourceRow<F, row>, 0, 2, n>(d);
            const Vector odd = sum<SourceRow<F, row>, 1, 2, n>(d);
            to[row] = even + odd;
            to[row + 1] = even - odd;
        });
        to[n - 1] = sum<SourceRow<F, n - 1>, 1, 2, n>(d);
    }
}

// A^T m: `m` has kProducts vectors, `to` kResults.
template <class F>
[[gnu::always_inline]] inline void to_results(const Vector *m, Vector *to) {
    if constexpr (F::kProducts == 1) {
        to[0] = m[0];
    } else {
        constexpr int n = F::kProducts, pairs = (n - 2) / 2;
        Vector even[pairs], odd[pairs];
        each<pairs>([&](auto pair) __attribute__((always_inline)) {
            even[pair] = m[2 * pair + 1] + m[2 * pair + 2];
            odd[pair] = m[2 * pair + 1] - m[2 * pair + 2];
        });
        each<F::kResults>([&](auto row) __attribute__((always_inline)) {
            constexpr int at = row;
            Vector total = sum<ResultRow<F, at>, 0, 1, pairs>(at % 2 == 0 ? even : odd);
            if constexpr (at == 0) total += m[0];
            if constexpr (at == F::kResults - 1) total += m[n - 1];
            to[at] = total;
        });
    }
}

// Transforms rows and columns of pixels, `row` and `column` floats apart, into products `step`
// floats apart.
template <class Down, class Across>
void source_tile(const float *from, Index row, Index column, float *to, Index step) {
    constexpr int h = Down::kProducts, w = Across::kProducts;
    Vector half[w][h];
    each<h>([&](auto i) __attribute__((always_inline)) {
        Vector pixels[w], made[w];
        each<w>([&](auto j) __attribute__((always_inline)) {
            pixels[j] = load(from + i * row + j * column);
        });
        to_products<Across>(pixels, made);
        each<w>([&](auto j) __attribute__((always_inline)) { half[j][i] = made[j]; });
    });
    each<w>([&](auto j) __attribute__((always_inline)) {
        Vector made[h];
        to_products<Down>(half[j], made);
        each<h>([&](auto i) __attribute__((always_inline)) { store(to + (i * w + j) * step, made[i]); });
    });
}

// Transforms products `step` floats apart into kResults rows of kResults results.
template <class Down, class Across>
[[gnu::always_inline]] inline void result_tile(const float *from, Index step, Vector *to) {
    constexpr int h = Down::kProducts, w = Across::kProducts;
    Vector half[Down::kResults][w];
    each<w>([&](auto j) __attribute__((always_inline)) {
        Vector products[h], made[Down::kResults];
        each<h>([&](auto i) __attribute__((always_inline)) {
            products[i] = load(from + (i * w + j) * step);
        });
        to_results<Down>(products, made);
        each<Down::kResults>([&](auto i) __attribute__((always_inline)) { half[i][j] = made[i]; });
    });
    each<Down::kResults>([&](auto i) __attribute__((always_inline)) {
        to_results<Across>(half[i], to + i * Across::kResults);
    });
}

}  // namespace vtensor::winograd
