// native/eigen/functions.h: the functions of element-wise programs, and element types.
//
// A value of a program is a float or a 64-bit integer for each element of a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "step.h"

namespace vtensor::eigen {

enum class Kind { kFloat, kInteger };

constexpr std::size_t kMostArguments = 3;

// y[i] = f(a[i], b[i], c[i]) for i < n; y may be the memory of an argument.
using Kernel3 = void (*)(const void *a, const void *b, const void *c, void *y, Index n);

// A function by its name in programs, such as "add f32".
struct Function {
    const char *name;
    std::size_t arguments;
    Kind takes[kMostArguments];
    Kind gives;
    Kernel3 kernel;
};

// The functions of arithmetic.cpp, smooth.cpp and integers.cpp.
std::span<const Function> arithmetic();
std::span<const Function> smooth();
std::span<const Function> integers();

// Returns the function of a name. Throws std::invalid_argument if there is none.
const Function &function(const std::string &name);

// The conversions between elements of a type and values of a program; n of each, `step` apart in
// memory. Narrow integers are the lower bits of values.
struct ElementType {
    const char *name;
    std::uint32_t bytes;
    Kind kind;
    void (*widen)(const void *src, Index step, void *values, Index n);
    void (*narrow)(const void *values, void *dst, Index n);
};

// Returns the element type of a name. Throws std::invalid_argument if there is none.
const ElementType &element_type(const std::string &name);

constexpr std::size_t value_bytes(Kind kind) { return kind == Kind::kFloat ? 4 : 8; }

}  // namespace vtensor::eigen
