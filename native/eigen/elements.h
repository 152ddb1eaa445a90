// native/eigen/elements.h: element types by name and by size, as C++ types.
#pragma once

#include <Eigen/Core>
#include <string>
#include <type_traits>
#include <utility>

#include "check.h"

namespace vtensor::eigen {

template <class T>
struct Type {
    using type = T;
};

// The type in which elements are computed: f32 for narrower floats, and unsigned integers, which
// wrap.
template <class T>
struct Wide {
    using type = T;
};
template <>
struct Wide<Eigen::half> {
    using type = float;
};
template <>
struct Wide<Eigen::bfloat16> {
    using type = float;
};
template <class T>
    requires std::is_integral_v<T>
struct Wide<T> {
    using type = std::make_unsigned_t<T>;
};

// Calls body(Type<T>()) with the type of this name.
template <class Body>
auto with_type(const std::string &name, const Body &body) {
    if (name == "f32") return body(Type<float>());
    if (name == "f64") return body(Type<double>());
    if (name == "f16") return body(Type<Eigen::half>());
    if (name == "bf16") return body(Type<Eigen::bfloat16>());
    if (name == "s64") return body(Type<std::int64_t>());
    if (name == "s32") return body(Type<std::int32_t>());
    if (name == "s8") return body(Type<std::int8_t>());
    if (name == "u8") return body(Type<std::uint8_t>());
    refuse("no elements of type " + name);
}

// Calls body likewise, for the names of float types that are computed in f32.
template <class Body>
auto with_fraction(const std::string &name, const Body &body) {
    if (name == "f32") return body(Type<float>());
    if (name == "f16") return body(Type<Eigen::half>());
    if (name == "bf16") return body(Type<Eigen::bfloat16>());
    refuse("fractions are f32, f16 or bf16, not " + name);
}

// Calls body likewise, for the names of all float types.
template <class Body>
auto with_float(const std::string &name, const Body &body) {
    if (name == "f64") return body(Type<double>());
    return with_fraction(name, body);
}

// Converts a float to f64, and back.
template <class T>
double widened(T one) {
    if constexpr (std::is_same_v<T, double>) return one;
    return static_cast<float>(one);
}
template <class T>
T narrowed(double one) {
    if constexpr (std::is_same_v<T, double>) return one;
    return static_cast<T>(static_cast<float>(one));
}

// Calls body(Type<T>()) with the unsigned type of this many bytes.
template <class Body>
auto with_bytes(Index item_bytes, const Body &body) {
    switch (item_bytes) {
        case 1: return body(Type<std::uint8_t>());
        case 2: return body(Type<std::uint16_t>());
        case 4: return body(Type<std::uint32_t>());
        case 8: return body(Type<std::uint64_t>());
        default: refuse("elements of 1, 2, 4 or 8 bytes only");
    }
}

// Calls body(Type<T>()) with the index type of this many bytes.
template <class Body>
auto with_index(Index index_bytes, const Body &body) {
    if (index_bytes == 8) return body(Type<std::int64_t>());
    if (index_bytes == 4) return body(Type<std::int32_t>());
    refuse("indices of 4 or 8 bytes only");
}

// Returns whether a value is NaN; false for integers.
template <class T>
bool is_nan(const T &value) {
    return !(value == value);
}

}  // namespace vtensor::eigen
