// native/narrow/vnni.cpp: products of unsigned and signed bytes with VNNI, of AVX-512 or AVX.
#include "vnni.h"

#include "sums.h"

#if defined(__AVX2__)

#include <cstring>

namespace vtensor::narrow {

namespace {

// The most rows at a time; with two vectors of columns, the sums fill most registers.
constexpr int kMost = kFours == 16 ? 12 : 6, kLanes = kFours;

inline Vector repeat(std::int32_t four) {
#if defined(__AVX512F__)
    return _mm512_set1_epi32(four);
#else
    return _mm256_set1_epi32(four);
#endif
}

inline Vector load(const std::int8_t *at) {
    Vector columns;
    std::memcpy(&columns, at, sizeof columns);
    return columns;
}

inline void store(const Vector &sums, std::int32_t *to) { std::memcpy(to, &sums, sizeof sums); }

// The products of some rows, from `first` on, and of vectors of columns `step` bytes apart: panels,
// or the halves of one.
template <int kCount, int kVectors>
void rows_by_vectors(const Block &block, Index step, Index first) {
    const std::byte *left = block.left + first * block.left_stride;
    const std::int8_t *right = block.right;
    Vector sums[kCount][kVectors] = {};
    for (Index group = 0; group < block.groups; ++group, right += kUnit, left += kGroup) {
        Vector columns[kVectors];
#pragma GCC unroll 2
        for (int vector = 0; vector < kVectors; ++vector)
            columns[vector] = load(right + vector * step);
#pragma GCC unroll 16
        for (int row = 0; row < kCount; ++row) {
            std::int32_t four = 0;
            std::memcpy(&four, left + row * block.left_stride, sizeof four);
            const Vector factor = repeat(four);
#pragma GCC unroll 2
            for (int vector = 0; vector < kVectors; ++vector)
                add_fours(sums[row][vector], factor, columns[vector]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kCount; ++row)
#pragma GCC unroll 2
        for (int vector = 0; vector < kVectors; ++vector)
            store(sums[row][vector], block.sums + (first + row) * kColumns + vector * kLanes);
}

// One row: several sums of each vector, so that no addition waits for the one before.
template <int kVectors>
void row_by_vectors(const Block &block, Index step, Index first) {
    constexpr int kParts = 4;
    const std::byte *left = block.left + first * block.left_stride;
    const std::int8_t *right = block.right;
    Vector sums[kParts][kVectors] = {};
    const auto add_group = [&](int part) __attribute__((always_inline)) {
        std::int32_t four = 0;
        std::memcpy(&four, left, sizeof four);
        const Vector factor = repeat(four);
#pragma GCC unroll 2
        for (int vector = 0; vector < kVectors; ++vector)
            add_fours(sums[part][vector], factor, load(right + vector * step));
        left += kGroup;
        right += kUnit;
    };
    Index group = 0;
    for (; group + kParts <= block.groups; group += kParts) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) add_group(part);
    }
    for (; group < block.groups; ++group) add_group(0);
    using Lanes [[gnu::vector_size(sizeof(Vector))]] = std::int32_t;
#pragma GCC unroll 2
    for (int vector = 0; vector < kVectors; ++vector) {
        const auto part = [&](int i) { return reinterpret_cast<Lanes>(sums[i][vector]); };
        const Lanes all = (part(0) + part(1)) + (part(2) + part(3));
        store(reinterpret_cast<Vector>(all), block.sums + first * kColumns + vector * kLanes);
    }
}

template <int kVectors>
void multiply(const Block &block, Index step) {
    Index row = 0;
    for (; row + kMost <= block.rows; row += kMost)
        rows_by_vectors<kMost, kVectors>(block, step, row);
    for (; row + 4 <= block.rows; row += 4) rows_by_vectors<4, kVectors>(block, step, row);
    for (; row + 2 <= block.rows; row += 2) rows_by_vectors<2, kVectors>(block, step, row);
    if (row < block.rows) row_by_vectors<kVectors>(block, step, row);
}

}  // namespace

void multiply_vnni(const Block &block) {
    if constexpr (kLanes < kPanel) {
        Block panel = block;
        for (Index i = 0; i < block.panels; ++i) {
            multiply<2>(panel, sizeof(Vector));
            panel.right += block.panel_bytes;
            panel.sums += kPanel;
        }
    } else if (block.panels == 2) {
        multiply<2>(block, block.panel_bytes);
    } else {
        multiply<1>(block, 0);
    }
}

}  // namespace vtensor::narrow

#endif
