// native/eigen/types.cpp: conversions of elements to values of programs and back; element types and
// functions by name.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "check.h"
#include "functions.h"
#include "narrow_types.h"

namespace vtensor::eigen {

namespace {

using Integer = std::int64_t;

// A half float, as its 16 bits.
struct Half {
    std::uint16_t bits;
};
struct BFloat {
    std::uint16_t bits;
};
struct Truth {
    std::uint8_t bits;
};

float value(float x) { return x; }
float value(Truth x) { return x.bits != 0 ? 1.0F : 0.0F; }
float value(BFloat x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16U); }
float value(Half x) { return static_cast<float>(std::bit_cast<_Float16>(x.bits)); }
template <class T>
Integer value(T x) {
    return x;
}

// An integer that programs take as a float: its number, which f32 holds exactly or rounded.
template <class T>
struct Number {
    T whole;
};
template <class T>
float value(Number<T> x) {
    return static_cast<float>(x.whole);
}

// Rounds ties to even; of NaN keeps the upper bits, made quiet.
void put(float x, BFloat &to) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U;
    to.bits = static_cast<std::uint16_t>(x != x ? (bits >> 16U | 0x40U) : rounded);
}
void put(float x, Half &to) { to.bits = std::bit_cast<std::uint16_t>(static_cast<_Float16>(x)); }
void put(float x, Truth &to) { to.bits = x != 0 ? 1 : 0; }
void put(float x, float &to) { to = x; }
template <class T>
void put(Integer x, T &to) {
    to = static_cast<T>(x);
}
// Cuts off the fraction; numbers beyond the type become its ends, and NaN 0.
template <class T>
void put(float x, Number<T> &to) {
    static_assert(sizeof(T) < sizeof(float), "f32 holds both ends");
    constexpr auto low = static_cast<float>(std::numeric_limits<T>::min());
    constexpr auto high = static_cast<float>(std::numeric_limits<T>::max());
    float bounded = x == x ? x : 0.0F;
    bounded = bounded > low ? bounded : low;
    bounded = bounded < high ? bounded : high;
    to.whole = static_cast<T>(static_cast<std::int32_t>(bounded));
}

template <class T, class Value>
void widen(const void *src, Index step, void *values, Index n) {
    const auto *from = static_cast<const T *>(src);
    auto *to = static_cast<Value *>(values);
    if (step == 0) {
        std::fill_n(to, n, value(from[0]));
    } else if (step == 1) {
        for (Index i = 0; i < n; ++i) to[i] = value(from[i]);
    } else {
        for (Index i = 0; i < n; ++i) to[i] = value(from[i * step]);
    }
}

template <class T, class Value>
void narrow(const void *values, void *dst, Index n) {
    const auto *from = static_cast<const Value *>(values);
    auto *to = static_cast<T *>(dst);
    for (Index i = 0; i < n; ++i) put(from[i], to[i]);
}

template <class T>
constexpr ElementType floats(const char *name) {
    return {name, sizeof(T), Kind::kFloat, widen<T, float>, narrow<T, float>};
}
template <class T>
constexpr ElementType whole(const char *name) {
    return {name, sizeof(T), Kind::kInteger, widen<T, Integer>, narrow<T, Integer>};
}
template <class T>
constexpr ElementType number(const char *name) {
    return floats<Number<T>>(name);
}

constexpr ElementType kTypes[]{
    floats<float>("f32"),          floats<Half>("f16"),
    floats<BFloat>("bf16"),        floats<Truth>("bool"),
    whole<std::int64_t>("s64"),    whole<std::int32_t>("s32"),
    whole<std::int16_t>("s16"),    whole<std::int8_t>("s8"),
    whole<std::uint32_t>("u32"),   whole<std::uint16_t>("u16"),
    whole<std::uint8_t>("u8"),
    floats<F8e4m3fn>("f8e4m3fn"),  floats<F8e4m3fnuz>("f8e4m3fnuz"),
    floats<F8e5m2>("f8e5m2"),      floats<F8e5m2fnuz>("f8e5m2fnuz"),
    floats<F6e2m3>("f6e2m3"),      floats<F6e3m2>("f6e3m2"),
    floats<F4e2m1>("f4e2m1"),
    whole<S4>("s4"),               whole<U4>("u4"),
    whole<S2>("s2"),               whole<U2>("u2"),
    number<std::int16_t>("s16 as f32"), number<std::int8_t>("s8 as f32"),
    number<std::uint16_t>("u16 as f32"), number<std::uint8_t>("u8 as f32"),
};

}  // namespace

const ElementType &element_type(const std::string &name) {
    for (const ElementType &type : kTypes)
        if (name == type.name) return type;
    refuse("there is no element type " + name);
}

const Function &function(const std::string &name) {
    for (const std::span<const Function> table : {arithmetic(), smooth(), integers()})
        for (const Function &one : table)
            if (name == one.name) return one;
    refuse("there is no function " + name);
}

}  // namespace vtensor::eigen
