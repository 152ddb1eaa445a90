// native/narrow/rounded.cpp: rounded rows times codes in blocks, with AVX-512's VNNI.
#include "rounded.h"

#if defined(__AVX512F__)

#include <cstring>

#include <immintrin.h>

// Nothing that this file defines inline may be used by others: it has other instructions.
#pragma GCC push_options
#pragma GCC target("avx512vnni")

namespace vtensor::narrow {

namespace {

template <int kBits, int kRows>
void rows_by_codes(const CodeProduct &call) {
    constexpr int kGroups = 8 / kBits;  // codes of a byte
    const __m512i mask = _mm512_set1_epi8(static_cast<char>((1U << kBits) - 1U));
    const std::uint32_t *words = call.words;
    const std::int8_t *codes = call.rows;
    __m512 totals[kRows][2];
    for (int row = 0; row < kRows; ++row) totals[row][0] = totals[row][1] = _mm512_setzero_ps();
    for (Index block = 0; block < call.blocks; ++block) {
        __m512i sums[kRows][2];
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) sums[row][0] = sums[row][1] = _mm512_setzero_si512();
        for (Index word = 0; word < call.block_words; ++word, words += kCodePanel) {
            const __m512i first = _mm512_loadu_si512(words), second = _mm512_loadu_si512(words + 16);
#pragma GCC unroll 4
            for (int group = 0; group < kGroups; ++group, codes += 4) {
                const __m512i a = _mm512_and_si512(_mm512_srli_epi32(first, kBits * group), mask);
                const __m512i b = _mm512_and_si512(_mm512_srli_epi32(second, kBits * group), mask);
#pragma GCC unroll 8
                for (int row = 0; row < kRows; ++row) {
                    std::int32_t four = 0;
                    std::memcpy(&four, codes + row * call.row_codes, sizeof four);
                    const __m512i factor = _mm512_set1_epi32(four);
                    sums[row][0] = _mm512_dpbusd_epi32(sums[row][0], a, factor);
                    sums[row][1] = _mm512_dpbusd_epi32(sums[row][1], b, factor);
                }
            }
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
            const Index at = block * kCodePanel + half * 16;
            const __m512 scale = _mm512_loadu_ps(call.scales + at);
            const __m512 zero = _mm512_loadu_ps(call.zeros + at);
#pragma GCC unroll 8
            for (int row = 0; row < kRows; ++row) {
                const Index own = row * call.blocks + block;
                const __m512 exact = _mm512_fnmadd_ps(zero, _mm512_set1_ps(call.row_sums[own]),
                                                      _mm512_cvtepi32_ps(sums[row][half]));
                const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(call.row_scales[own]));
                totals[row][half] = _mm512_fmadd_ps(both, exact, totals[row][half]);
            }
        }
    }
    for (int row = 0; row < kRows; ++row) {
        _mm512_storeu_ps(call.dst + row * kCodePanel, totals[row][0]);
        _mm512_storeu_ps(call.dst + row * kCodePanel + 16, totals[row][1]);
    }
}

template <int kBits>
void by_codes(const CodeProduct &call, int rows) {
    static_assert(kCodeRows == 6);
    switch (rows) {
        case 1:
            return rows_by_codes<kBits, 1>(call);
        case 2:
            return rows_by_codes<kBits, 2>(call);
        case 3:
            return rows_by_codes<kBits, 3>(call);
        case 4:
            return rows_by_codes<kBits, 4>(call);
        case 5:
            return rows_by_codes<kBits, 5>(call);
        default:
            return rows_by_codes<kBits, 6>(call);
    }
}

}  // namespace

MultiplyCodes multiply_codes(int bits) {
    if (!__builtin_cpu_supports("avx512vnni")) return nullptr;
    return bits == 2 ? by_codes<2> : bits == 4 ? by_codes<4> : by_codes<8>;
}

}  // namespace vtensor::narrow

#pragma GCC pop_options

#else

namespace vtensor::narrow {

MultiplyCodes multiply_codes(int /*bits*/) { return nullptr; }

}  // namespace vtensor::narrow

#endif
