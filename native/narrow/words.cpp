// native/narrow/words.cpp: products of 16-bit integers, which never saturate.
#include <algorithm>
#include <cstring>

#include "sums.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace vtensor::narrow {

namespace {

// A vector holds 32-bit sums: two of each column, of rows 0 and 1, and of rows 2 and 3.
#if defined(__AVX512BW__)
using Sums = __m512i;
constexpr int kSums = 2, kMost = 8;  // vectors of a panel, and rows at a time
inline Sums widen(const std::int8_t *at) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(at)));
}
inline Sums repeat(std::int64_t group) { return _mm512_set1_epi64(group); }
inline Sums add(Sums sums, Sums a, Sums b) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(a, b));
}
inline void store(const Sums (&sums)[kSums], std::int32_t *to) {
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_permutex2var_epi32(sums[0], even, sums[1]),
                                             _mm512_permutex2var_epi32(sums[0], odd, sums[1])));
}
#elif defined(__AVX2__)
using Sums = __m256i;
constexpr int kSums = 4, kMost = 3;
inline Sums widen(const std::int8_t *at) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(at)));
}
inline Sums repeat(std::int64_t group) { return _mm256_set1_epi64x(group); }
inline Sums add(Sums sums, Sums a, Sums b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
}
inline void store(const Sums (&sums)[kSums], std::int32_t *to) {
    for (int half = 0; half < 2; ++half) {
        const __m256i mixed = _mm256_hadd_epi32(sums[2 * half], sums[2 * half + 1]);
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + 8 * half),
                            _mm256_permute4x64_epi64(mixed, 0xD8));
    }
}
#elif defined(__SSE2__)
using Sums = __m128i;
constexpr int kSums = 8, kMost = 1;
inline Sums widen(const std::int8_t *at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(at));
    return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
inline Sums repeat(std::int64_t group) { return _mm_set1_epi64x(group); }
inline Sums add(Sums sums, Sums a, Sums b) { return _mm_add_epi32(sums, _mm_madd_epi16(a, b)); }
#else
struct Sums {
    std::int32_t pairs[4];
};
constexpr int kSums = 8, kMost = 1;
inline Sums pairs_of(const std::int16_t (&words)[8]) {
    Sums made;
    std::memcpy(made.pairs, words, sizeof made.pairs);
    return made;
}
inline Sums widen(const std::int8_t *at) {
    std::int16_t words[8];
    std::copy(at, at + 8, words);
    return pairs_of(words);
}
inline Sums repeat(std::int64_t group) {
    std::int16_t words[8];
    std::memcpy(words, &group, sizeof group);
    std::memcpy(words + 4, &group, sizeof group);
    return pairs_of(words);
}
inline Sums add(Sums sums, const Sums &a, const Sums &b) {
    std::int16_t x[8], y[8];
    std::memcpy(x, a.pairs, sizeof x);
    std::memcpy(y, b.pairs, sizeof y);
    for (int i = 0; i < 4; ++i)
        sums.pairs[i] = static_cast<std::int32_t>(
            static_cast<std::uint32_t>(sums.pairs[i]) +
            static_cast<std::uint32_t>(x[2 * i] * y[2 * i] + x[2 * i + 1] * y[2 * i + 1]));
    return sums;
}
#endif

#if !defined(__AVX2__)
inline void store(const Sums (&sums)[kSums], std::int32_t *to) {
    std::uint32_t pairs[2 * kPanel];
    std::memcpy(pairs, sums, sizeof pairs);
    for (Index column = 0; column < kPanel; ++column)
        to[column] = static_cast<std::int32_t>(pairs[2 * column] + pairs[2 * column + 1]);
}
#endif

template <int kCount>
void rows_by_panel(const std::byte *left, Index stride, const std::int8_t *right, Index groups,
                   std::int32_t *to) {
    Sums sums[kCount][kSums] = {};
    for (Index group = 0; group < groups; ++group, right += kUnit) {
        Sums factors[kCount];
#pragma GCC unroll 8
        for (int row = 0; row < kCount; ++row) {
            std::int64_t four = 0;
            std::memcpy(&four, left + row * stride + group * 8, sizeof four);
            factors[row] = repeat(four);
        }
#pragma GCC unroll 8
        for (int part = 0; part < kSums; ++part) {
            const Sums columns = widen(right + part * (kUnit / kSums));
#pragma GCC unroll 8
            for (int row = 0; row < kCount; ++row)
                sums[row][part] = add(sums[row][part], factors[row], columns);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < kCount; ++row) store(sums[row], to + row * kColumns);
}

}  // namespace

void multiply_words(const Block &block) {
    for (Index panel = 0; panel < block.panels; ++panel) {
        const std::int8_t *right = block.right + panel * block.panel_bytes;
        std::int32_t *to = block.sums + panel * kPanel;
        const std::byte *left = block.left;
        Index row = 0;
        for (; row + kMost <= block.rows; row += kMost)
            rows_by_panel<kMost>(left + row * block.left_stride, block.left_stride, right,
                                 block.groups, to + row * kColumns);
        for (; row < block.rows; ++row)
            rows_by_panel<1>(left + row * block.left_stride, block.left_stride, right,
                             block.groups, to + row * kColumns);
    }
}

}  // namespace vtensor::narrow
