// native/eigen/attention.cpp: attention, a panel of queries at a time.
//
// Only the scores of one panel are in memory, as keys by queries: a vector holds the products of
// one key with neighbouring queries, so that softmax runs down the keys without sums across a
// vector. Threads share batches and panels.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "check.h"
#include "exponential.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

#if defined(__AVX512F__)
constexpr int kVector = 16, kMostRows = 8;
#elif defined(__AVX__)
constexpr int kVector = 8, kMostRows = 6;
#else
constexpr int kVector = 4, kMostRows = 4;
#endif
// The most queries, or columns of values, in a panel: two vectors.
constexpr int kPanel = 2 * kVector;

typedef float Vector __attribute__((vector_size(kVector * sizeof(float))));

// Loads a vector from any address.
inline Vector load(const float *from) {
    Vector loaded;
    std::memcpy(&loaded, from, sizeof loaded);
    return loaded;
}
inline void store(const Vector &vector, float *to) { std::memcpy(to, &vector, sizeof vector); }

// Copies a row. Rows are so short that calling memcpy would take longer.
inline void copy(const float *from, Index count, float *to) {
    for (; count >= kVector; count -= kVector, from += kVector, to += kVector) store(load(from), to);
    for (Index i = 0; i < count; ++i) to[i] = from[i];
}

// c (Rows by Vectors * kVector) = a * b, where a has any strides and the rows of b are dense.
template <int Vectors, int Rows>
void block(const float *a, Index a_row, Index a_step, const float *b, Index b_row, Index depth,
           float *c, Index c_row) {
    Vector sum[Rows][Vectors] = {};
    for (Index k = 0; k < depth; ++k, a += a_step, b += b_row) {
        Vector row[Vectors];
#pragma GCC unroll 2
        for (int j = 0; j < Vectors; ++j) row[j] = load(b + j * kVector);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
            for (int j = 0; j < Vectors; ++j) sum[i][j] += a[i * a_row] * row[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < Vectors; ++j) store(sum[i][j], c + i * c_row + j * kVector);
}

using Block = void (*)(const float *, Index, Index, const float *, Index, Index, float *, Index);

template <int Vectors, int... Rows>
constexpr std::array<Block, sizeof...(Rows)> blocks(std::integer_sequence<int, Rows...>) {
    return {&block<Vectors, Rows + 1>...};
}

// Multiplies any number of rows, in blocks of nearly equal size.
template <int Vectors>
void multiply(Index rows, const float *a, Index a_row, Index a_step, const float *b, Index b_row,
              Index depth, float *c, Index c_row) {
    static constexpr auto kBlocks = blocks<Vectors>(std::make_integer_sequence<int, kMostRows>{});
    for (Index left = (rows + kMostRows - 1) / kMostRows, i = 0; left > 0; --left) {
        const Index count = (rows - i) / left;
        kBlocks[count - 1](a + i * a_row, a_row, a_step, b, b_row, depth, c + i * c_row, c_row);
        i += count;
    }
}

// Calls a function template with the number of vectors for this many columns.
template <class Call>
void with_vectors(Index columns, const Call &call) {
    if (columns <= kVector)
        call(std::integral_constant<int, 1>{});
    else
        call(std::integral_constant<int, 2>{});
}

// Returns a thread's working memory, which grows on demand and stays.
float *memory(std::size_t elements) {
    thread_local std::vector<float> kept;
    if (kept.size() < elements) kept.resize(elements);
    return kept.data();
}

class Attend final : public Step {
public:
    Attend(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
           const std::vector<Mask> &masks, const AttentionNumbers &numbers)
        : Step("attention"), batch_(batch), sizes_(sizes), strides_(strides), masks_(masks),
          numbers_(numbers) {
        const auto &[queries, keys, features, values] = sizes_;
        demand(strides.size() == 4, "strides are of q, k, v and y");
        demand(keys > 0, "a mean over no keys");
        add_slot("q", VTENSOR_READ, whole(strides[0], queries, features));
        add_slot("k", VTENSOR_READ, whole(strides[1], keys, features));
        add_slot("v", VTENSOR_READ, whole(strides[2], keys, values));
        for (const Mask &mask : masks_) {
            demand(mask.strides.size() == batch.size() + 2, "strides of a mask");
            Ints shape = batch;
            shape.insert(shape.end(), {queries, keys});
            add_slot("mask", VTENSOR_READ, reach(shape, mask.strides), mask.truth ? 1 : 4);
        }
        add_slot("dst", VTENSOR_WRITE, whole(strides[3], queries, values));
        panels_ = plus(queries, kPanel - 1) / kPanel;
        pieces_ = times(product(batch), panels_);
        work_ = times(times(pieces_, times(kPanel, keys)), plus(features, values));
        // Per panel: queries, scores and result; per batch: keys and values.
        columns_ = plus(values, kPanel - 1) / kPanel * kPanel;
        const Index own = times(plus(plus(features, keys), kPanel), kPanel);
        floats_ = static_cast<std::size_t>(plus(own, times(keys, plus(features, columns_))));
    }

private:
    Index whole(const Ints &strides, Index rows, Index columns) const {
        product({rows, columns});
        const std::size_t axes = batch_.size();
        demand(strides.size() == axes + static_cast<std::size_t>(rows), "strides of an operand");
        Ints shape = batch_, steps(strides.begin(), strides.end() - rows);
        Index last = 0;
        for (std::size_t row = axes; row < strides.size(); ++row) {
            demand(strides[row] >= 0, "a row begins before its batch");
            last = std::max(last, strides[row]);
        }
        shape.insert(shape.end(), {rows, columns});
        steps.insert(steps.end(), {0, 1});
        return reach(shape, steps, last);
    }

    // Returns the offset of a row of q, k, v or y in its batch.
    Index row_offset(std::size_t operand, Index index) const {
        return strides_[operand][batch_.size() + static_cast<std::size_t>(index)];
    }

    Index offset(const Ints &strides, Index batch) const {
        Index at = 0;
        for (std::size_t axis = batch_.size(); axis-- > 0; batch /= batch_[axis])
            at += batch % batch_[axis] * strides[axis];
        return at;
    }

    void run(void *const *slots) const override {
        parallel(pieces_, work_, [&](Index begin, Index end) {
            float *kept = memory(floats_);
            for (Index piece = begin; piece < end; ++piece) {
                const Index batch = piece / panels_;
                if (piece == begin || piece % panels_ == 0) gather(slots, batch, kept);
                const Index first = piece % panels_ * kPanel;
                with_vectors(sizes_.queries - first, [&](auto vectors) {
                    panel<vectors()>(slots, batch, first, kept);
                });
            }
        });
    }

    // Copies keys and values of a batch to contiguous memory, values in panels of columns: without
    // the copy, each row may be on a page of its own.
    void gather(void *const *slots, Index batch, float *kept) const {
        const auto &[queries, keys, features, values] = sizes_;
        const float *k = input(slots, 1) + offset(strides_[1], batch);
        const float *v = input(slots, 2) + offset(strides_[2], batch);
        float *panels = kept + keys * features;
        for (Index key = 0; key < keys; ++key)
            copy(k + row_offset(1, key), features, kept + key * features);
        for (Index at = 0; at < values; at += kPanel)
            for (Index key = 0; key < keys; ++key)
                copy(v + row_offset(2, key) + at, std::min<Index>(kPanel, values - at),
                     panels + at * keys + key * kPanel);
    }

    template <int Vectors>
    void panel(void *const *slots, Index batch, Index first, float *kept) const {
        constexpr int kWidth = Vectors * kVector;
        const auto &[queries, keys, features, values] = sizes_;
        const Index count = std::min<Index>(kWidth, queries - first);
        const float *k = kept, *v = k + keys * features;
        float *turned = kept + keys * (features + columns_);
        float *scores = turned + features * kPanel, *result = scores + keys * kPanel;
        turn(input(slots, 0) + offset(strides_[0], batch), first, count, kWidth, turned);
        multiply<Vectors>(keys, k, features, 1, turned, kWidth, features, scores, kWidth);
        for (std::size_t m = 0; m < masks_.size(); ++m)
            hide(scores, kWidth, masks_[m], slots[3 + m], batch, first, count);
        float inverse[kWidth];
        weigh<kWidth>(scores, inverse);
        float *y = output(slots, 3 + masks_.size()) + offset(strides_[3], batch);
        for (Index at = 0; at < values; at += kPanel) {
            const Index width = std::min<Index>(kPanel, values - at);
            with_vectors(width, [&](auto vectors) {
                multiply<vectors()>(count, scores, 1, kWidth, v + at * keys, kPanel, keys, result,
                                    kPanel);
            });
            for (Index i = 0; i < count; ++i) {
                float *to = y + row_offset(3, first + i) + at;
                for (Index c = 0; c < width; ++c) to[c] = result[i * kPanel + c] * inverse[i];
            }
        }
    }

    // Copies queries from `first` on as features by queries, scaled; missing queries are zeros.
    void turn(const float *q, Index first, Index count, Index width, float *turned) const {
        const Index features = sizes_.features;
        if (count < width) std::fill_n(turned, features * width, 0.0F);
        for (Index i = 0; i < count; ++i) {
            const float *from = q + row_offset(0, first + i);
            for (Index f = 0; f < features; ++f)
                turned[f * width + i] = from[f] * numbers_.scale;
        }
    }

    void hide(float *scores, Index width, const Mask &mask, const void *elements, Index batch,
              Index first, Index count) const {
        const Index along = mask.strides.back(), down = *(mask.strides.end() - 2);
        const Index begin = offset(mask.strides, batch) + first * down;
        const auto *kept = static_cast<const unsigned char *>(elements) + (mask.truth ? begin : 0);
        const auto *added = static_cast<const float *>(elements) + (mask.truth ? 0 : begin);
        for (Index key = 0; key < sizes_.keys; ++key) {
            float *row = scores + key * width;
            if (mask.truth) {
                for (Index i = 0; i < count; ++i)
                    if (kept[key * along + i * down] == 0) row[i] = numbers_.masked;
            } else if (down == 0) {
                for (Index i = 0; i < count; ++i) row[i] += added[key * along];
            } else if (down == 1) {
                for (Index i = 0; i < count; ++i) row[i] += added[key * along + i];
            } else {
                for (Index i = 0; i < count; ++i) row[i] += added[key * along + i * down];
            }
        }
    }

    // Turns scores into exponentials; `inverse` gets 1 / their sum, by which the caller multiplies.
    template <int Width>
    void weigh(float *scores, float *inverse) const {
        using Lanes = Eigen::Array<float, Width, 1>;
        Lanes most = Lanes::Constant(-std::numeric_limits<float>::infinity());
        Lanes sum = Lanes::Zero();
        for (Index key = 0; key < sizes_.keys; ++key)
            most = most.max(Eigen::Map<const Lanes>(scores + key * Width));
        for (Index key = 0; key < sizes_.keys; ++key) {
            Eigen::Map<Lanes> row(scores + key * Width);
            row -= most;
            for (int i = 0; i < Width; ++i) row[i] = exp_weight(row[i]);
            sum += row;
        }
        for (int i = 0; numbers_.zero && i < Width; ++i) {
            if (sum[i] == sum[i]) continue;
            for (Index key = 0; key < sizes_.keys; ++key) scores[key * Width + i] = 0;
            sum[i] = 1;
        }
        for (int i = 0; i < Width; ++i) inverse[i] = 1 / sum[i];
    }

    Ints batch_;
    AttentionSizes sizes_;
    std::vector<Ints> strides_;
    std::vector<Mask> masks_;
    AttentionNumbers numbers_;
    Index pieces_ = 0, panels_ = 0, columns_ = 0, work_ = 0;
    std::size_t floats_ = 0;
};

}  // namespace

Step *attention(const Ints &batch, const AttentionSizes &sizes, const std::vector<Ints> &strides,
                const std::vector<Mask> &masks, const AttentionNumbers &numbers) {
    return new Attend(batch, sizes, strides, masks, numbers);
}

}  // namespace vtensor::eigen
