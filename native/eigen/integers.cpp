// native/eigen/integers.cpp: functions of 64-bit integers, which wrap around.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "loops.h"
#include "narrow_types.h"

namespace vtensor::eigen {

namespace {

using Integer = std::int64_t;
using Bits = std::uint64_t;

constexpr Bits kBits = 64;

Integer wrapped(Bits bits) { return static_cast<Integer>(bits); }
Bits bits(Integer value) { return static_cast<Bits>(value); }

Integer add(Integer a, Integer b) { return wrapped(bits(a) + bits(b)); }
Integer sub(Integer a, Integer b) { return wrapped(bits(a) - bits(b)); }
Integer mul(Integer a, Integer b) { return wrapped(bits(a) * bits(b)); }
Integer neg(Integer a) { return wrapped(-bits(a)); }
Integer abs(Integer a) { return a < 0 ? neg(a) : a; }
Integer sign(Integer a) { return Integer{a > 0} - Integer{a < 0}; }
Integer max(Integer a, Integer b) { return std::max(a, b); }
Integer min(Integer a, Integer b) { return std::min(a, b); }
Integer copy(Integer a) { return a; }

// A quotient by 0 is 0. Divided by -1, the smallest number overflows and wraps to itself.
Integer div(Integer a, Integer b) { return b == 0 ? 0 : b == -1 ? neg(a) : a / b; }
Integer fmod(Integer a, Integer b) { return b == 0 || b == -1 ? 0 : a % b; }
Integer mod(Integer a, Integer b) {
    const Integer rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Integer both(Integer a, Integer b) { return a & b; }
Integer either(Integer a, Integer b) { return a | b; }
Integer differ(Integer a, Integer b) { return a ^ b; }
Integer invert(Integer a) { return ~a; }

// Shifting by 64 bits or more leaves only the sign.
Integer shl(Integer a, Integer b) { return bits(b) < kBits ? wrapped(bits(a) << bits(b)) : 0; }
Integer shr(Integer a, Integer b) { return a >> std::min(bits(b), kBits - 1); }

float eq(Integer a, Integer b) { return a == b ? 1.0F : 0.0F; }
float lt(Integer a, Integer b) { return a < b ? 1.0F : 0.0F; }
float le(Integer a, Integer b) { return a <= b ? 1.0F : 0.0F; }
float to_bool(Integer a) { return a != 0 ? 1.0F : 0.0F; }
float to_float(Integer a) { return static_cast<float>(a); }

// Returns the lower bits, as type T.
template <class T>
Integer to(Integer a) {
    return static_cast<T>(a);
}

constexpr Function kTable[]{
    two<Integer, Integer, add>("add s64"),
    two<Integer, Integer, sub>("sub s64"),
    two<Integer, Integer, mul>("mul s64"),
    two<Integer, Integer, div>("div s64"),
    two<Integer, Integer, mod>("mod s64"),
    two<Integer, Integer, fmod>("fmod s64"),
    two<Integer, Integer, max>("max s64"),
    two<Integer, Integer, min>("min s64"),
    two<Integer, Integer, both>("and s64"),
    two<Integer, Integer, either>("or s64"),
    two<Integer, Integer, differ>("xor s64"),
    two<Integer, Integer, shl>("shl s64"),
    two<Integer, Integer, shr>("shr s64"),
    two<float, Integer, eq>("eq s64"),
    two<float, Integer, lt>("lt s64"),
    two<float, Integer, le>("le s64"),
    one<Integer, Integer, invert>("not s64"),
    one<Integer, Integer, neg>("neg s64"),
    one<Integer, Integer, abs>("abs s64"),
    one<Integer, Integer, sign>("sign s64"),
    one<Integer, Integer, copy>("copy s64"),
    one<float, Integer, to_bool>("to_bool s64"),
    one<float, Integer, to_float>("to_f32 s64"),
    one<Integer, Integer, to<std::int32_t>>("to_s32 s64"),
    one<Integer, Integer, to<std::int16_t>>("to_s16 s64"),
    one<Integer, Integer, to<std::int8_t>>("to_s8 s64"),
    one<Integer, Integer, to<std::uint32_t>>("to_u32 s64"),
    one<Integer, Integer, to<std::uint16_t>>("to_u16 s64"),
    one<Integer, Integer, to<std::uint8_t>>("to_u8 s64"),
    one<Integer, Integer, stored<S4, Integer>>("to_s4 s64"),
    one<Integer, Integer, stored<U4, Integer>>("to_u4 s64"),
    one<Integer, Integer, stored<S2, Integer>>("to_s2 s64"),
    one<Integer, Integer, stored<U2, Integer>>("to_u2 s64"),
    selection<Integer>("select s64"),
};

}  // namespace

std::span<const Function> integers() { return kTable; }

}  // namespace vtensor::eigen
