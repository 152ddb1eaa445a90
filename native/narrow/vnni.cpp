// native/narrow/vnni.cpp: products of unsigned and signed bytes with AVX-512's VNNI.
#include "sums.h"

#if defined(__AVX512F__)

#include <cstring>

#include <immintrin.h>

// Nothing that this file defines inline may be used by others: it has other instructions.
#pragma GCC push_options
#pragma GCC target("avx512vnni")

namespace vtensor::narrow {

namespace {

constexpr int kMost = 12;  // by two panels: 24 sums in 32 registers

// As _mm512_dpbusd_epi32, whose sums GCC 12 would copy from register to register, and to memory.
[[gnu::always_inline]] inline void add(__m512i &sums, const __m512i &factor,
                                       const __m512i &columns) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(factor), "v"(columns));
}

template <int kCount, int kPanels>
void rows_by_panels(const Block &block, Index first) {
    const std::byte *left = block.left + first * block.left_stride;
    const std::int8_t *right = block.right;
    __m512i sums[kCount][kPanels];
#pragma GCC unroll 16
    for (int row = 0; row < kCount; ++row)
#pragma GCC unroll 2
        for (int panel = 0; panel < kPanels; ++panel) sums[row][panel] = _mm512_setzero_si512();
    for (Index group = 0; group < block.groups; ++group, right += kUnit, left += kGroup) {
        __m512i columns[kPanels];
#pragma GCC unroll 2
        for (int panel = 0; panel < kPanels; ++panel)
            columns[panel] = _mm512_loadu_si512(right + panel * block.panel_bytes);
#pragma GCC unroll 16
        for (int row = 0; row < kCount; ++row) {
            std::int32_t four = 0;
            std::memcpy(&four, left + row * block.left_stride, sizeof four);
            const __m512i factor = _mm512_set1_epi32(four);
#pragma GCC unroll 2
            for (int panel = 0; panel < kPanels; ++panel)
                add(sums[row][panel], factor, columns[panel]);
        }
    }
#pragma GCC unroll 16
    for (int row = 0; row < kCount; ++row)
#pragma GCC unroll 2
        for (int panel = 0; panel < kPanels; ++panel)
            _mm512_storeu_si512(block.sums + (first + row) * kColumns + panel * kPanel,
                                sums[row][panel]);
}

// One row: several sums of each panel, so that no addition waits for the one before.
template <int kPanels>
void row_by_panels(const Block &block, Index first) {
    constexpr int kParts = 4;
    const std::byte *left = block.left + first * block.left_stride;
    const std::int8_t *right = block.right;
    __m512i sums[kParts][kPanels];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
#pragma GCC unroll 2
        for (int panel = 0; panel < kPanels; ++panel) sums[part][panel] = _mm512_setzero_si512();
    const auto step = [&](int part) __attribute__((always_inline)) {
        std::int32_t four = 0;
        std::memcpy(&four, left, sizeof four);
        const __m512i factor = _mm512_set1_epi32(four);
#pragma GCC unroll 2
        for (int panel = 0; panel < kPanels; ++panel)
            add(sums[part][panel], factor,
                _mm512_loadu_si512(right + panel * block.panel_bytes));
        left += kGroup;
        right += kUnit;
    };
    Index group = 0;
    for (; group + kParts <= block.groups; group += kParts) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) step(part);
    }
    for (; group < block.groups; ++group) step(0);
#pragma GCC unroll 2
    for (int panel = 0; panel < kPanels; ++panel) {
        const __m512i low = _mm512_add_epi32(sums[0][panel], sums[1][panel]);
        const __m512i high = _mm512_add_epi32(sums[2][panel], sums[3][panel]);
        _mm512_storeu_si512(block.sums + first * kColumns + panel * kPanel,
                            _mm512_add_epi32(low, high));
    }
}

template <int kPanels>
void multiply(const Block &block) {
    Index row = 0;
    for (; row + kMost <= block.rows; row += kMost) rows_by_panels<kMost, kPanels>(block, row);
    for (; row + 4 <= block.rows; row += 4) rows_by_panels<4, kPanels>(block, row);
    for (; row + 2 <= block.rows; row += 2) rows_by_panels<2, kPanels>(block, row);
    if (row < block.rows) row_by_panels<kPanels>(block, row);
}

}  // namespace

void multiply_vnni(const Block &block) {
    if (block.panels == 2) return multiply<2>(block);
    multiply<1>(block);
}

}  // namespace vtensor::narrow

#pragma GCC pop_options

#endif
