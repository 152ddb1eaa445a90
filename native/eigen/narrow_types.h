// native/eigen/narrow_types.h: floats and integers of at most 8 bits, each in a byte of its own, as
// numbers. The upper bits of a byte are 0 where they are written, and ignored where they are read.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace vtensor::eigen {

// What numbers become that are too large for a float type, and NaN.
enum class Beyond {
    kInfinite,  // infinity, NaN of the same sign; as in IEEE 754
    kNan,       // the largest code, the only NaN of each sign
    kUnsigned,  // the code that would be -0, the only NaN; -0 becomes 0
    kLargest,   // the largest number; NaN becomes 0 of the other sign, as in ml_dtypes
};

// A float as its bits: a sign, an exponent with a bias, and a fraction.
template <unsigned kBits, unsigned kFraction, unsigned kBias, Beyond kBeyond>
struct NarrowFloat {
    static constexpr std::uint32_t kSign = 1U << (kBits - 1), kLast = kSign - 1;
    static constexpr std::uint32_t kMost = kBeyond == Beyond::kInfinite ? kLast - (1U << kFraction)
                                           : kBeyond == Beyond::kNan    ? kLast - 1
                                                                        : kLast;
    static constexpr unsigned kShift = 23 - kFraction;  // from the fraction's place in an f32

    std::uint8_t bits;

    static constexpr float decoded(std::uint32_t code) {
        const std::uint32_t size = code & kLast, sign = (code & kSign) << (32 - kBits);
        if (kBeyond == Beyond::kUnsigned && size == 0 && sign != 0)
            return -std::numeric_limits<float>::quiet_NaN();
        if (size > kMost) {
            const bool infinite = kBeyond == Beyond::kInfinite && size == kMost + 1;
            return std::bit_cast<float>(sign | 0x7F800000U | (infinite ? 0 : 1U << 22U));
        }
        const float number = std::bit_cast<float>(size << kShift) *
                             std::bit_cast<float>((254 - kBias) << 23U);  // 2^(127 - bias)
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) | sign);
    }

    // Rounds ties to even.
    static std::uint32_t encoded(float x) {
        constexpr std::uint32_t kHalf = 1U << (kShift - 1), kInfinity = 0x7F800000U;
        // A float from which on the smallest number of the type is the distance to the next float.
        constexpr std::uint32_t kGrain = (127 + 24 - kBias - kFraction) << 23U;
        constexpr std::uint32_t kFirstNormal = (127 + 1 - kBias) << 23U;
        const auto whole = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t size = whole & ~(1U << 31U), sign = whole >> 31U << (kBits - 1);
        const float moved = std::bit_cast<float>(size) + std::bit_cast<float>(kGrain);
        const std::uint32_t small = std::bit_cast<std::uint32_t>(moved) - kGrain;
        const std::uint32_t normal = ((size + kHalf - 1 + (size >> kShift & 1U)) >> kShift) -
                                     ((127 - kBias) << kFraction);
        const std::uint32_t code = size < kFirstNormal ? small : normal;
        if constexpr (kBeyond == Beyond::kUnsigned) {
            return code > kMost || size > kInfinity ? kSign : code == 0 ? 0 : code | sign;
        } else if constexpr (kBeyond == Beyond::kLargest) {
            return size > kInfinity ? sign ^ kSign : (code < kMost ? code : kMost) | sign;
        } else if constexpr (kBeyond == Beyond::kNan) {
            return (code > kMost || size > kInfinity ? kLast : code) | sign;
        } else {
            const std::uint32_t payload = size >> kShift & ((1U << kFraction) - 1);
            const std::uint32_t nan = kMost + 1 + (payload != 0 ? payload : 1U << (kFraction - 1));
            return (size > kInfinity ? nan : code > kMost ? kMost + 1 : code) | sign;
        }
    }

    static constexpr auto kNumbers = [] {
        std::array<float, 256> numbers{};
        for (std::uint32_t code = 0; code < 256; ++code) numbers[code] = decoded(code);
        return numbers;
    }();
};

using F8e4m3fn = NarrowFloat<8, 3, 7, Beyond::kNan>;
using F8e4m3fnuz = NarrowFloat<8, 3, 8, Beyond::kUnsigned>;
using F8e5m2 = NarrowFloat<8, 2, 15, Beyond::kInfinite>;
using F8e5m2fnuz = NarrowFloat<8, 2, 16, Beyond::kUnsigned>;
using F6e2m3 = NarrowFloat<6, 3, 1, Beyond::kLargest>;
using F6e3m2 = NarrowFloat<6, 2, 3, Beyond::kLargest>;
using F4e2m1 = NarrowFloat<4, 1, 1, Beyond::kLargest>;

template <unsigned kBits, unsigned kFraction, unsigned kBias, Beyond kBeyond>
float value(NarrowFloat<kBits, kFraction, kBias, kBeyond> x) {
    return x.kNumbers[x.bits];
}
template <unsigned kBits, unsigned kFraction, unsigned kBias, Beyond kBeyond>
void put(float x, NarrowFloat<kBits, kFraction, kBias, kBeyond> &to) {
    to.bits = static_cast<std::uint8_t>(to.encoded(x));
}

// An integer of fewer than 8 bits.
template <unsigned kBits, bool kSigned>
struct NarrowInteger {
    std::uint8_t bits;
};

using S4 = NarrowInteger<4, true>;
using U4 = NarrowInteger<4, false>;
using S2 = NarrowInteger<2, true>;
using U2 = NarrowInteger<2, false>;

template <unsigned kBits, bool kSigned>
std::int64_t value(NarrowInteger<kBits, kSigned> x) {
    constexpr std::int64_t kEnd = 1 << kBits, kSign = kSigned ? kEnd / 2 : 0;
    return ((x.bits & (kEnd - 1)) ^ kSign) - kSign;
}
template <unsigned kBits, bool kSigned>
void put(std::int64_t x, NarrowInteger<kBits, kSigned> &to) {
    to.bits = static_cast<std::uint8_t>(x & ((1 << kBits) - 1));
}

// Returns a value as it is after it has been stored as a T.
template <class T, class Value>
Value stored(Value x) {
    T element;
    put(x, element);
    return value(element);
}

}  // namespace vtensor::eigen
