// native/replay/finite.h: whether numbers are finite. No Python in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "runner.h"

namespace vtensor::replay {

// The exponent of an element type: bytes of an element (a power of two up to 8), and the bits that
// are all set in infinities and NaN. Without bits every element is finite.
struct Exponent {
    std::size_t bytes = 1;
    std::uint64_t bits = 0;
};

// Bytes from which on a team searches faster than one thread.
inline constexpr std::size_t kShared = std::size_t{1} << 17;

// Returns whether any of `count` words has all of `bits` set. Inlined for a constant number of
// words, and without a branch, it becomes a loop of vectors.
template <typename Word>
inline bool any_has(const std::byte *memory, std::size_t count, Word bits) {
    Word any = 0;
    for (std::size_t i = 0; i < count; ++i) {
        Word word;
        std::memcpy(&word, memory + i * sizeof(Word), sizeof(Word));
        any |= (word & bits) == bits ? Word(1) : Word(0);
    }
    return any != 0;
}

template <typename Word>
bool all_finite(const std::byte *memory, std::size_t count, Word bits) {
    constexpr std::size_t block = 4096 / sizeof(Word);
    const std::size_t blocks = count / block;
    int found = any_has(memory + blocks * 4096, count % block, bits);
#pragma omp parallel for schedule(static) reduction(| : found) if (blocks * 4096 >= kShared)
    for (std::size_t at = 0; at < blocks; ++at)
        found |= static_cast<int>(any_has(memory + at * 4096, block, bits));
    return found == 0;
}

// Returns whether all elements are finite; a team of the calling thread helps. Bytes after the last
// whole element are not read.
inline bool all_finite(const Memory &memory, const Exponent &exponent) {
    if (exponent.bits == 0) return true;
    const auto *bytes = static_cast<const std::byte *>(memory.address);
    const std::size_t count = memory.bytes / exponent.bytes;
    switch (exponent.bytes) {
        case 1: return all_finite(bytes, count, static_cast<std::uint8_t>(exponent.bits));
        case 2: return all_finite(bytes, count, static_cast<std::uint16_t>(exponent.bits));
        case 4: return all_finite(bytes, count, static_cast<std::uint32_t>(exponent.bits));
        default: return all_finite(bytes, count, exponent.bits);
    }
}

}  // namespace vtensor::replay
