// native/narrow/window.h: images of bytes with their pads, in the form that a kernel needs.
#pragma once

#include <algorithm>
#include <cstring>

#include "eigen/check.h"
#include "kernels.h"

namespace vtensor::narrow {

inline Index product_of(const Ints &sizes) { return eigen::product(sizes); }

// Checks the sizes of a convolution's window; no offset in a padded image overflows then.
inline void check_window(const Convolution &call) {
    const auto check = [&](const Ints &numbers, Index least) {
        eigen::demand(numbers.size() == 3, "sizes are of three spatial dims");
        for (const Index number : numbers)
            eigen::demand(number >= least && number < Index{1} << 31, "a size is out of range");
    };
    check(call.src, 0);
    check(call.dst, 0);
    check(call.begin, 0);
    for (const Ints *numbers : {&call.taps, &call.strides, &call.dilations}) check(*numbers, 1);
    for (const Index count : {call.images, call.channels, call.outputs})
        eigen::demand(count >= 0 && count < Index{1} << 40, "a size is out of range");
    Index padded = eigen::times(8, std::max<Index>(call.channels, 1));
    for (std::size_t i = 0; i < 3; ++i) {
        const Index reach = (call.taps[i] - 1) * call.dilations[i] + 1;
        const Index most = eigen::plus(eigen::times(call.dst[i], call.strides[i]), reach);
        padded = eigen::times(padded, most);
    }
    eigen::times(padded, std::max<Index>(call.images, 1));
}

// A group's channels of an image, in `packer.form`, with the pads that windows reach, a pixel after
// another.
struct Window {
    Ints src, dst, taps, strides, dilations, begin;
    Packer packer;
    Index item, stored;  // bytes of an element, and elements of a pixel
    Ints padded;

    Window(const Convolution &call, const Kind &kind, Index stored_)
        : src(call.src), dst(call.dst), taps(call.taps), strides(call.strides),
          dilations(call.dilations), begin(call.begin),
          packer{kind.form, is_signed(call.src_type)}, item(kind.item()), stored(stored_) {
        for (std::size_t i = 0; i < 3; ++i)
            padded.push_back(
                dst[i] == 0 ? 0 : (dst[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1);
    }

    Index pixel_bytes() const { return stored * item; }
    Index line_bytes() const { return padded[2] * pixel_bytes(); }
    Index lines() const { return padded[0] * padded[1]; }
    Index bytes() const { return up(lines() * line_bytes(), 64); }
    Index padded_offset(Index z, Index y, Index x) const {
        return (z * padded[1] + y) * line_bytes() + x * pixel_bytes();
    }
    // Returns where the window of a pixel of dst begins.
    Index offset(Index z, Index y, Index x) const {
        return padded_offset(z * strides[0], y * strides[1], x * strides[2]);
    }

    // Writes a line of the padded image from src, of whose pixels `channels` elements are used.
    // Pads stand for `zero`; elements beyond the channels are 0.
    void fill(const std::uint8_t *from, Index pixel, Index channels, Index zero, Index line,
              std::byte *image) const {
        std::byte *to = image + line * line_bytes();
        line_at(from, pixel, channels, zero, line / padded[1], line % padded[1], to);
    }

    // The same for the line at a depth and a height of the padded image, to any address.
    void line_at(const std::uint8_t *from, Index pixel, Index channels, Index zero, Index depth,
                 Index height, std::byte *to) const {
        const Index z = depth - begin[0], y = height - begin[1];
        const bool inside = z >= 0 && z < src[0] && y >= 0 && y < src[1];
        const Index first = inside ? std::min(begin[2], padded[2]) : padded[2];
        const Index last = inside ? std::min(begin[2] + src[2], padded[2]) : padded[2];
        if (inside) from += (z * src[1] + y) * src[2] * pixel;
        const Index end = std::max(first, last);
        pads(first, channels, zero, to);
        if (stored == channels && pixel == channels)  // pixels that follow one another
            packer.copy(from, (end - first) * stored, zero, to + first * pixel_bytes());
        else
            pixels(from, pixel, channels, zero, end - first, to + first * pixel_bytes());
        pads(padded[2] - end, channels, zero, to + end * pixel_bytes());
    }

private:
    void pixels(const std::uint8_t *from, Index pixel, Index channels, Index zero, Index count,
                std::byte *to) const {
        constexpr Index kWhole = 32;
        if (item == 2 && channels == kWhole && stored == kWhole) {
            for (Index x = 0; x < count; ++x, from += pixel, to += pixel_bytes())
                packer.copy(from, kWhole, zero, to);
            return;
        }
        using Bytes16 = std::uint8_t __attribute__((vector_size(kPanel)));
        using Bytes8 = std::uint8_t __attribute__((vector_size(kPanel / 2)));
        const auto flip = static_cast<std::uint8_t>(packer.zero(0));
        const auto bytes = [&](auto several) {
            const auto flips = several ^ flip;
            for (Index x = 0; x < count; ++x, from += pixel, to += sizeof several) {
                std::memcpy(&several, from, sizeof several);
                several ^= flips;
                std::memcpy(to, &several, sizeof several);
            }
        };
        if (item == 1 && channels == stored && stored == kPanel)
            return bytes(Bytes16{});
        if (item == 1 && channels == stored && stored == kPanel / 2)
            return bytes(Bytes8{});
        if (item == 1 && stored == kGroup) {  // all but the last: words reach beyond a pixel
            const std::uint32_t mask = (1U << (8 * channels % 32)) - 1U;
            const std::uint32_t flip = packer.zero(0) == 0 ? 0 : mask & 0x80808080U;
            for (; channels < kGroup && count > kGroup; --count, from += pixel, to += kGroup) {
                std::uint32_t word = 0;
                std::memcpy(&word, from, sizeof word);
                word = (word & mask) ^ flip;
                std::memcpy(to, &word, sizeof word);
            }
        }
        for (Index x = 0; x < count; ++x, from += pixel, to += pixel_bytes()) {
            packer.copy(from, channels, zero, to);
            clear(channels, to);
        }
    }
    void clear(Index channels, std::byte *to) const {
        std::memset(to + channels * item, 0, static_cast<std::size_t>((stored - channels) * item));
    }
    // Writes pixels that stand for `zero`.
    void pads(Index count, Index channels, Index zero, std::byte *to) const {
        if (channels == stored) return packer.fill(count * stored, zero, to);
        for (Index x = 0; x < count; ++x, to += pixel_bytes()) {
            packer.fill(channels, zero, to);
            clear(channels, to);
        }
    }
};

}  // namespace vtensor::narrow
