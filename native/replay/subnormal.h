// native/replay/subnormal.h: sets subnormal f32 numbers (below 2^-126) to zero. No Python in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runner.h"

namespace vtensor::replay {

// Numbers of a cache line, and the distance between the lines that are sampled first, in numbers. A
// tensor whose samples have no subnormals is left unchanged: few subnormals cost little.
inline constexpr std::size_t kLine = 16, kSampled = 16 * kLine;

inline bool any_subnormal(const std::byte *memory) {
    std::uint32_t any = 0;
    for (std::size_t i = 0; i < kLine; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, memory + i * sizeof bits, sizeof bits);
        any |= std::uint32_t((bits & 0x7f800000U) == 0) & std::uint32_t((bits << 1U) != 0);
    }
    return any != 0;
}

// Clears the subnormals of an array of f32, if the sampled lines have any, and returns whether they
// had.
inline bool clear_subnormals(const Memory &memory) {
    auto *const bytes = static_cast<std::byte *>(memory.address);
    const std::size_t count = memory.bytes / sizeof(std::uint32_t);
    bool found = false;
    for (std::size_t at = 0; at + kLine <= count && !found; at += kSampled)
        found = any_subnormal(bytes + at * sizeof(std::uint32_t));
    if (!found) return false;
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t bits;
        std::memcpy(&bits, bytes + i * sizeof bits, sizeof bits);
        bits &= (bits & 0x7f800000U) == 0 ? 0x80000000U : 0xffffffffU;
        std::memcpy(bytes + i * sizeof bits, &bits, sizeof bits);
    }
    return true;
}

}  // namespace vtensor::replay
