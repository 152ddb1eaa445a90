// native/narrow/amx.cpp: products of bytes in tiles of 16 x 16 sums.
#include "sums.h"

#if defined(__AVX512F__)

#include <cstring>

#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8")

namespace vtensor::narrow {

namespace {

// As the instruction reads it: all tiles have 16 rows of 64 bytes.
struct alignas(64) Configuration {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr Configuration kConfiguration;
constexpr Index kTileGroups = 16;  // groups of the right factor in a tile

#define VTENSOR_TILE_PRODUCT(sums, left, right) \
    if constexpr (kSigned) {                    \
        _tile_dpbssd(sums, left, right);        \
    } else {                                    \
        _tile_dpbusd(sums, left, right);        \
    }

// Tiles 0 to 3 are sums, by rows and panels; 4 and 5 are of the left factor, 6 and 7 of the right.
template <bool kSigned, bool kTwoRows, bool kTwoPanels>
[[gnu::always_inline]] inline void add_tiles(const std::byte *left, Index stride,
                                             const std::int8_t *first, const std::int8_t *second) {
    _tile_loadd(6, first, kUnit);
    _tile_loadd(4, left, stride);
    VTENSOR_TILE_PRODUCT(0, 4, 6)
    if constexpr (kTwoPanels) {
        _tile_loadd(7, second, kUnit);
        VTENSOR_TILE_PRODUCT(1, 4, 7)
    }
    if constexpr (kTwoRows) {
        _tile_loadd(5, left + kPanel * stride, stride);
        VTENSOR_TILE_PRODUCT(2, 5, 6)
        if constexpr (kTwoPanels) {
            VTENSOR_TILE_PRODUCT(3, 5, 7)
        }
    }
}

template <bool kSigned, bool kTwoRows, bool kTwoPanels>
void multiply(const Block &block) {
    const std::byte *left = block.left;
    const std::int8_t *first = block.right, *second = first + block.panel_bytes;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    Index group = 0;
    for (; group + kTileGroups <= block.groups; group += kTileGroups) {
        add_tiles<kSigned, kTwoRows, kTwoPanels>(left, block.left_stride, first, second);
        left += kUnit;
        first += kTileGroups * kUnit;
        second += kTileGroups * kUnit;
    }
    if (group < block.groups) {  // the left factor is 0 where the right one has no rows
        alignas(64) std::int8_t copy[2 * kRestBytes];
        const std::int8_t *rest = block.rest;
        if (rest == nullptr) {
            const std::size_t bytes = static_cast<std::size_t>((block.groups - group) * kUnit);
            std::memset(copy, 0, sizeof copy);
            std::memcpy(copy, first, bytes);
            if constexpr (kTwoPanels) std::memcpy(copy + kRestBytes, second, bytes);
            rest = copy;
        }
        __asm__ volatile("" ::: "memory");  // GCC does not see that tiles are loaded from memory
        add_tiles<kSigned, kTwoRows, kTwoPanels>(left, block.left_stride, rest, rest + kRestBytes);
    }
    constexpr Index kStride = kColumns * sizeof(std::int32_t);
    _tile_stored(0, block.sums, kStride);
    if constexpr (kTwoPanels) _tile_stored(1, block.sums + kPanel, kStride);
    if constexpr (kTwoRows) {
        std::int32_t *below = block.sums + kPanel * kColumns;
        _tile_stored(2, below, kStride);
        if constexpr (kTwoPanels) _tile_stored(3, below + kPanel, kStride);
    }
}

template <bool kSigned>
void choose(const Block &block) {
    const bool two_rows = block.rows > kPanel, two_panels = block.panels > 1;
    if (two_rows && two_panels) return multiply<kSigned, true, true>(block);
    if (two_rows) return multiply<kSigned, true, false>(block);
    if (two_panels) return multiply<kSigned, false, true>(block);
    multiply<kSigned, false, false>(block);
}

#undef VTENSOR_TILE_PRODUCT

}  // namespace

void multiply_amx(const Block &block) {
    if (block.is_signed) return choose<true>(block);
    choose<false>(block);
}

void begin_amx() { _tile_loadconfig(&kConfiguration); }
void end_amx() { _tile_release(); }

}  // namespace vtensor::narrow

#pragma GCC pop_options

#endif
