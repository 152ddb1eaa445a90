// native/onednn/floats.h: floating-point numbers as bits, and a search for NaN and -inf in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace vtensor::onednn {

// A floating-point type: sign, exponent, fraction. Numbers without their signs are ordered as their
// bits are, read as integers.
template <typename Bits, Bits kInfinite, int kFractionBits>
struct Float {
    using Type = Bits;
    static constexpr int kFraction = kFractionBits;
    static constexpr Bits kInfinity = kInfinite;
    static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    static constexpr Bits kLowest = kSign | kInfinity;
    static constexpr Bits kNaN = kInfinity | static_cast<Bits>(Bits{1} << (kFractionBits - 1));

    static bool is_nan(Bits bits) { return static_cast<Bits>(bits & ~kSign) > kInfinity; }
    static std::int64_t order(Bits bits) {
        const auto magnitude = static_cast<std::int64_t>(bits & static_cast<Bits>(~kSign));
        return (bits & kSign) != 0 ? -magnitude : magnitude;
    }
};

using F32 = Float<std::uint32_t, 0x7f800000, 23>;
using Bf16 = Float<std::uint16_t, 0x7f80, 7>;
using F16 = Float<std::uint16_t, 0x7c00, 10>;

template <typename F>
bool is_odd(typename F::Type bits) {
    return F::is_nan(bits) || bits == F::kLowest;
}

// Elements of a block that one thread searches at a time.
constexpr std::int64_t kBlock = 4096;

// Returns the indices of the blocks of kBlock elements that hold a NaN or -inf; all threads search.
template <typename F>
std::vector<std::int64_t> odd_blocks(const typename F::Type *values, std::int64_t count);

}  // namespace vtensor::onednn
