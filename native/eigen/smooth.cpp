// native/eigen/smooth.cpp: exponentials, logarithms, trigonometric functions and their kin, of
// floats.
//
// The functions that networks use most are computed in f32, to 1 or 2 units in the last place; the
// others in f64, rounded once. All are free of branches, so that compilers vectorise them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "exponential.h"
#include "loops.h"

namespace vtensor::eigen {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kWideInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

VTENSOR_INLINE float size_of(float x) { return __builtin_fabsf(x); }
VTENSOR_INLINE double size_of(double x) { return __builtin_fabs(x); }

// The error function by N. Juffa: its error is below 1 unit in the last place where a product and a
// sum are rounded once (fused).
VTENSOR_INLINE float erf(float x) {
    const float t = size_of(x), s = x * x;
    const float head = polynomial(t, -1.72853470e-5F, 3.83197126e-4F) * s +
                       polynomial(t, -3.88396438e-3F, 2.42546219e-2F);
    const float power = polynomial(t, head, -1.06777877e-1F, -6.34846687e-1F, -1.28717512e-1F);
    const float far = __builtin_copysignf(1.0F - exp(power * t - t), x);
    const float near = polynomial(s, -5.96761703e-4F, 4.99119423e-3F, -2.67681349e-2F,
                                  1.12819925e-1F, -3.76125336e-1F, 1.28379166e-1F);
    return t > 0.927734375F ? far : near * x + x;
}

// Returns e^x for results in the range of floats, with a relative error of 1e-13.
VTENSOR_INLINE double wide_exp(double x) {
    constexpr double kMagic = 0x1.8p52;
    const double above = x < -700.0 ? -700.0 : x;
    const double inside = above > 700.0 ? 700.0 : above;
    const double moved = inside * 0x1.71547652B82FEp0 + kMagic;
    const double k = moved - kMagic;
    const double r = (inside - k * 0x1.62E42FEFA0000p-1) - k * 0x1.CF79ABC9E3B3Ap-40;
    const double p =
        polynomial(r, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                   1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
    const std::uint64_t bits =
        std::bit_cast<std::uint64_t>(p) + (std::bit_cast<std::uint64_t>(moved) << 52U);
    return x != x ? x : std::bit_cast<double>(bits);
}

// Returns the logarithm as k ln 2 + 2 artanh(s) with s = (m - 1) / (m + 1), where x = 2^k m and m
// is near 1.
VTENSOR_INLINE double wide_log(double x) {
    constexpr std::uint64_t kRootHalf = 0x3FE6A09E00000000U;
    constexpr std::uint64_t kBias = 0x3FFU, kToDouble = 0x4330000000000000U;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t raised = bits + (kBias << 52U) - kRootHalf;
    const std::uint64_t power = (raised >> 52U) & 0xFFFU;
    const double k = std::bit_cast<double>(power | kToDouble) - (0x1p52 + kBias);
    const double m = std::bit_cast<double>(bits - (power << 52U) + (kBias << 52U));
    const double s = (m - 1) / (m + 1), t = s * s;
    const double series = polynomial(t, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7,
                                     1.0 / 5, 1.0 / 3);
    const double sum = k * 0x1.62E42FEFA39EFp-1 + 2 * (s + s * t * series);
    const double finite = x == kWideInfinity ? x : x > 0 ? sum : kNaN;
    return x == 0 ? -kWideInfinity : finite;
}

VTENSOR_INLINE double wide_log1p(double x) {
    const double near = x * polynomial(x, -1.0 / 4, 1.0 / 3, -1.0 / 2, 1.0);
    return size_of(x) < 1e-4 ? near : wide_log(1 + x);
}

VTENSOR_INLINE double wide_expm1(double x) {
    const double near = x * polynomial(x, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0);
    return size_of(x) < 1e-3 ? near : wide_exp(x) - 1;
}

VTENSOR_INLINE float expm1(float x) { return static_cast<float>(wide_expm1(x)); }
VTENSOR_INLINE float log(float x) { return static_cast<float>(wide_log(x)); }
VTENSOR_INLINE float log1p(float x) {
    const auto y = static_cast<float>(wide_log1p(x));
    return x == 0 ? x : y;
}

// The power of IEEE 754: 1 if the base is 1 or the exponent 0, whatever the other is.
VTENSOR_INLINE float pow(float x, float y) {
    const float whole = __builtin_truncf(y);
    const bool odd = whole == y && __builtin_truncf(y * 0.5F) * 2.0F != y;
    const auto size = static_cast<float>(wide_exp(y * wide_log(size_of(x))));
    const float some = whole != y && x < 0 && x > -kInfinity ? static_cast<float>(kNaN) : size;
    const float signs = odd ? __builtin_copysignf(some, x) : some;
    const bool always = x == 1 || y == 0 || (x == -1 && size_of(y) == kInfinity);
    return always ? 1.0F : signs;
}

// An angle reduced to x = k pi/2 + r.
struct Angle {
    double r;
    std::uint64_t quarter;
};

VTENSOR_INLINE Angle reduced(double x) {
    constexpr double kMagic = 0x1.8p52;
    const double moved = x * 0x1.45F306DC9C883p-1 + kMagic;
    const double k = moved - kMagic;
    const double r = (x - k * 0x1.921FB544p0) - k * 0x1.0B4611A626331p-34;
    return {r, std::bit_cast<std::uint64_t>(moved)};
}

VTENSOR_INLINE double sine(double r) {
    const double t = r * r;
    return r + r * t * polynomial(t, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120,
                                  -1.0 / 6);
}

VTENSOR_INLINE double cosine(double r) {
    const double t = r * r;
    return polynomial(t, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5,
                      1.0);
}

// Returns the sine of x plus `shift` right angles.
VTENSOR_INLINE float turned(float x, std::uint64_t shift) {
    const auto [r, k] = reduced(x);
    const std::uint64_t quarter = k + shift;
    const double s = sine(r), c = cosine(r);
    const double size = (quarter & 1U) != 0 ? c : s;
    const auto y = static_cast<float>((quarter & 2U) != 0 ? -size : size);
    return x == 0 && shift == 0 ? x : y;
}

VTENSOR_INLINE float sin(float x) { return turned(x, 0); }
VTENSOR_INLINE float cos(float x) { return turned(x, 1); }
VTENSOR_INLINE float tan(float x) {
    const auto [r, k] = reduced(x);
    const double s = sine(r), c = cosine(r);
    const auto y = static_cast<float>((k & 1U) != 0 ? -c / s : s / c);
    return x == 0 ? x : y;
}

// Bound of the angles that `reduced` takes; larger ones are rare and use the C library.
constexpr float kLargeAngle = 0x1p20F;

template <auto kFunction, auto kLarge>
void each_angle(const void *a, const void *b, const void *c, void *y, Index n) {
    const auto *first = static_cast<const float *>(a);
    float most = 0;
    for (Index i = 0; i < n; ++i) most = size_of(first[i]) < kLargeAngle ? most : kInfinity;
    if (most == 0) return each<float, float, kFunction>(a, b, c, y, n);
    auto *result = static_cast<float *>(y);
    for (Index i = 0; i < n; ++i)
        result[i] = size_of(first[i]) < kLargeAngle ? kFunction(first[i])
                                                    : static_cast<float>(kLarge(double{first[i]}));
}

VTENSOR_INLINE double large_sin(double x) { return std::sin(x); }
VTENSOR_INLINE double large_cos(double x) { return std::cos(x); }
VTENSOR_INLINE double large_tan(double x) { return std::tan(x); }

template <auto kFunction, auto kLarge>
constexpr Function angle(const char *name) {
    return {name, 1, {Kind::kFloat}, Kind::kFloat, each_angle<kFunction, kLarge>};
}

// Returns the arc tangent, reduced by pi/2 - atan(1 / x) to at most 1 and by pi/4 + atan((x - 1) /
// (x + 1)) to at most tan(pi/8).
VTENSOR_INLINE double wide_atan(double x) {
    constexpr double kQuarter = 0x1.921FB54442D18p-1;
    const double size = size_of(x);
    const bool large = size > 1;
    const double inside = large ? 1 / size : size;
    const bool middle = inside > 0.41421356237309503;
    const double z = middle ? (inside - 1) / (inside + 1) : inside;
    const double t = z * z;
    const double series = polynomial(t, -1.0 / 27, 1.0 / 25, -1.0 / 23, 1.0 / 21, -1.0 / 19,
                                     1.0 / 17, -1.0 / 15, 1.0 / 13, -1.0 / 11, 1.0 / 9, -1.0 / 7,
                                     1.0 / 5, -1.0 / 3);
    const double small = (middle ? kQuarter : 0.0) + (z + z * t * series);
    const double whole = large ? 2 * kQuarter - small : small;
    return __builtin_copysign(whole, x);
}

VTENSOR_INLINE float atan(float x) { return static_cast<float>(wide_atan(x)); }
VTENSOR_INLINE float asin(float x) {
    const double wide = x;
    return static_cast<float>(wide_atan(wide / __builtin_sqrt((1 - wide) * (1 + wide))));
}
VTENSOR_INLINE float acos(float x) {
    const double wide = x;
    return static_cast<float>(2 * wide_atan(__builtin_sqrt((1 - wide) / (1 + wide))));
}

VTENSOR_INLINE float sinh(float x) {
    const double wide = x, t = wide * wide;
    const double e = wide_exp(wide);
    const double near = wide + wide * t * polynomial(t, 1.0 / 5040, 1.0 / 120, 1.0 / 6);
    return static_cast<float>(size_of(wide) < 0.03 ? near : (e - 1 / e) / 2);
}
VTENSOR_INLINE float cosh(float x) {
    const double e = wide_exp(x);
    return static_cast<float>((e + 1 / e) / 2);
}
VTENSOR_INLINE float asinh(float x) {
    const double size = size_of(double{x});
    const double y = wide_log1p(size + size * size / (1 + __builtin_sqrt(size * size + 1)));
    return __builtin_copysignf(static_cast<float>(size == kWideInfinity ? size : y), x);
}
VTENSOR_INLINE float acosh(float x) {
    const double wide = x, above = wide - 1;
    const double y = wide_log1p(above + __builtin_sqrt(above * (wide + 1)));
    return static_cast<float>(wide >= 1 ? y : kNaN);
}
VTENSOR_INLINE float atanh(float x) {
    const double wide = x;
    const auto y = static_cast<float>(wide_log1p(2 * wide / (1 - wide)) / 2);
    return x == 0 ? x : y;
}

constexpr Function kTable[]{
    one<float, float, exp>("exp f32"),
    one<float, float, logistic>("logistic f32"),
    one<float, float, erf>("erf f32"),
    one<float, float, tanh>("tanh f32"),
    one<float, float, expm1>("expm1 f32"),
    one<float, float, log>("log f32"),
    one<float, float, log1p>("log1p f32"),
    two<float, float, pow>("pow f32"),
    angle<sin, large_sin>("sin f32"),
    angle<cos, large_cos>("cos f32"),
    angle<tan, large_tan>("tan f32"),
    one<float, float, asin>("asin f32"),
    one<float, float, acos>("acos f32"),
    one<float, float, atan>("atan f32"),
    one<float, float, sinh>("sinh f32"),
    one<float, float, cosh>("cosh f32"),
    one<float, float, asinh>("asinh f32"),
    one<float, float, acosh>("acosh f32"),
    one<float, float, atanh>("atanh f32"),
};

}  // namespace

std::span<const Function> smooth() { return kTable; }

}  // namespace vtensor::eigen
