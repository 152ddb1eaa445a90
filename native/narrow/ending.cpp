// native/narrow/ending.cpp: scaling, additions, bounds and rounding, a vector at a time.
#include "ending.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "eigen/check.h"
#include "winograd/vector.h"

namespace vtensor::narrow {

namespace {

using eigen::demand;
using winograd::all;
using winograd::kLanes;
using winograd::Vector;

using Whole = std::int32_t __attribute__((vector_size(kLanes * 4)));
using Signed = std::int8_t __attribute__((vector_size(kLanes)));
using Unsigned = std::uint8_t __attribute__((vector_size(kLanes)));

// The stages in order; whether a stage has one element for each column, or one at all times.
enum Place : std::size_t {
    kSum,
    kScale,
    kCode,
    kDecodeZero,
    kDecodeScale,
    kBias,
    kOther,
    kOtherZero,
    kOtherScale,
    kStep,
    kZero
};
constexpr std::array<const char *, 11> kNames{
    "sum",   "scale",      "code",        "decode_zero", "decode_scale", "bias",
    "other", "other_zero", "other_scale", "step",        "zero"};

// Load and store `count` elements, from element `first` on.
template <class Of>
[[gnu::always_inline]] inline Of load(const void *from, Index first, Index count) {
    constexpr Index kItem = sizeof(Of) / kLanes;
    Of value{};
    std::memcpy(&value, static_cast<const std::byte *>(from) + first * kItem,
                static_cast<std::size_t>(count * kItem));
    return value;
}
template <class Of>
[[gnu::always_inline]] inline void put(void *to, Index first, Index count, const Of &value) {
    constexpr Index kItem = sizeof(Of) / kLanes;
    std::memcpy(static_cast<std::byte *>(to) + first * kItem, &value,
                static_cast<std::size_t>(count * kItem));
}

template <class To, class From>
[[gnu::always_inline]] inline To as(const From &value) {
    return __builtin_convertvector(value, To);
}

// Rounds numbers to bytes, ties to even, after adding a zero point. NaN becomes 0.
class Coder {
public:
    Coder(bool is_signed, float zero)
        : low_(all((is_signed ? -128.0F : 0.0F) - zero)), high_(low_ + 255.0F), none_(all(-zero)) {
        const Vector shift = all(kShift);
        std::memcpy(&origin_, &shift, sizeof origin_);
        origin_ = static_cast<std::int32_t>(zero) - origin_;
    }

    [[gnu::always_inline]] Whole operator()(Vector value) const {
        value = value == value ? value : none_;
        value = value > low_ ? value : low_;
        value = value < high_ ? value : high_;
        value += kShift;
        Whole bits{};
        std::memcpy(&bits, &value, sizeof bits);
        return bits + origin_;
    }

private:
    // A sum with it, of a number of a magnitude below 2^22, has no bits for a fraction.
    static constexpr float kShift = 12582912.0F;  // 1.5 * 2^23
    Vector low_, high_, none_;
    Whole origin_;
};

// Returns bytes as integers; GCC 12 converts vectors of bytes one by one.
template <class Bytes>
[[gnu::always_inline]] inline Whole widened(const Bytes &bytes) {
    alignas(sizeof(Whole)) std::int32_t wide[kLanes];
    for (Index i = 0; i < kLanes; ++i) wide[i] = bytes[i];
    Whole value{};
    std::memcpy(&value, wide, sizeof value);
    return value;
}

template <class Item>
void spread(Item *to, const Item *from, bool one, Index first, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = one ? *from : from[first + i];
}

}  // namespace

Ending::Type Ending::type_of(const std::string &name) {
    constexpr std::array<const char *, 4> kTypes{"s32", "f32", "u8", "s8"};
    for (std::size_t i = 0; i < kTypes.size(); ++i)
        if (name == kTypes[i]) return static_cast<Type>(i + 1);
    eigen::refuse("no results of the element type " + name);
}

Ending::Ending(const EndingCall &call, Index columns, Index elements)
    : stages_{false, false, false, Type::none, Type::none, type_of(call.dst), call.low, call.high} {
    auto &[scaled, biased, divided, code, other, dst, low, high] = stages_;
    demand(low <= high, "the bounds leave nothing");
    Index past = 0;
    bool past_zero = false, decoded = false;
    for (const auto &[name, type, count] : call.stages) {
        const auto at = std::find(kNames.begin() + past, kNames.end(), name);
        demand(at != kNames.end(), "the stages have another order, or there is no such stage");
        const auto place = static_cast<std::size_t>(at - kNames.begin());
        past = static_cast<Index>(place) + 1;
        const bool byte = type == "u8" || type == "s8";
        const bool fits = place == kSum ? type == "s32"
                          : place == kOther ? byte || type == "f32"
                          : place == kOtherZero ? byte && other == type_of(type)
                          : place == kCode ? byte
                          : place == kDecodeZero ? byte && code == type_of(type)
                          : place == kZero ? byte && type == call.dst
                                           : type == "f32";
        demand(fits, "a stage has no operand of this element type");
        const bool single = place == kOtherZero || place == kOtherScale || place == kZero ||
                            (place >= kCode && place <= kDecodeScale);
        const Index most = single ? 1 : place == kOther ? elements : columns;
        demand(count == most || (count == 1 && place != kOther),
               "a stage's operand has another size");
        demand(place == kSum || place == kScale || scaled, "a stage is for scaled sums");
        const bool one = count == 1 && !single;
        if (place == kSum) one_sum_ = one;
        if (place == kScale) scaled = true, one_scale_ = one;
        if (place == kCode) code = type_of(type);
        if (place == kDecodeScale) decoded = true;
        if (place == kBias) biased = true, one_bias_ = one;
        if (place == kOther) other = type_of(type);
        if (place == kStep) divided = true, one_step_ = one;
        demand(place != kOtherScale || other == Type::u8 || other == Type::s8,
               "only bytes are scaled before they are added");
        demand(place != kDecodeScale || past_zero, "only codes are decoded");
        past_zero = place == kDecodeZero;
        slots_.push_back({name, count, byte ? 1U : 4U});
        places_.push_back(place);
    }
    const bool narrow = dst == Type::u8 || dst == Type::s8;
    demand(scaled ? dst != Type::s32 : dst == Type::s32, "sums are s32 unless they are scaled");
    demand(code == Type::none || decoded, "codes are decoded");
    demand(narrow || !divided, "only what becomes bytes is divided");
    demand(scaled || (std::isinf(low) && std::isinf(high)), "sums have no bounds");
    only_codes_ = scaled && narrow && !biased && !divided && code == Type::none &&
                  other == Type::none && std::isinf(low) && std::isinf(high);
    slots_.push_back({"dst", elements, narrow ? 1U : 4U});
}

EndingOperands Ending::operands(void *const *addresses) const {
    EndingOperands at{};
    at.other_scale = 1;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        const void *address = addresses[i];
        const auto byte = [&](bool is_signed) {
            return is_signed ? Index{*static_cast<const std::int8_t *>(address)}
                             : Index{*static_cast<const std::uint8_t *>(address)};
        };
        switch (places_[i]) {
        case kSum: at.sum = static_cast<const std::int32_t *>(address); break;
        case kScale: at.scale = static_cast<const float *>(address); break;
        case kBias: at.bias = static_cast<const float *>(address); break;
        case kCode: at.code = static_cast<float>(byte(stages_.code == Type::s8)); break;
        case kDecodeZero:
            at.decode_zero = static_cast<float>(byte(stages_.code == Type::s8));
            break;
        case kDecodeScale: at.decode_scale = *static_cast<const float *>(address); break;
        case kOther: at.other = address; break;
        case kOtherZero: at.other_zero = static_cast<float>(byte(stages_.other == Type::s8)); break;
        case kOtherScale: at.other_scale = *static_cast<const float *>(address); break;
        case kStep: at.step = static_cast<const float *>(address); break;
        default: at.zero = static_cast<std::int32_t>(byte(stages_.dst == Type::s8));
        }
    }
    at.dst = addresses[places_.size()];
    return at;
}

EndingColumns Ending::columns(const EndingOperands &at, Index first, Index count) const {
    EndingColumns made{};
    if (at.sum != nullptr) spread(made.shift, at.sum, one_sum_, first, count);
    if (stages_.scaled) spread(made.scale, at.scale, one_scale_, first, count);
    if (stages_.biased) spread(made.bias, at.bias, one_bias_, first, count);
    if (stages_.divided) spread(made.step, at.step, one_step_, first, count);
    return made;
}

template <bool kWhole>
[[gnu::always_inline]] inline void Ending::vector(const Stages &stages,
                                                  const EndingOperands &at,
                                                  const EndingColumns &columns,
                                                  const std::int32_t *sums, Index column, Index to,
                                                  Index count) {
    if constexpr (kWhole) count = kLanes;
    const Whole sum = load<Whole>(sums, column, kLanes) +
                      load<Whole>(columns.shift, column, kLanes);
    if (!stages.scaled) return put(at.dst, to, count, sum);
    Vector value = as<Vector>(sum) * load<Vector>(columns.scale, column, kLanes);
    if (stages.code != Type::none) {
        const Whole codes = Coder(stages.code == Type::s8, at.code)(value);
        value = (as<Vector>(codes) - at.decode_zero) * at.decode_scale;
    }
    if (stages.biased) value += load<Vector>(columns.bias, column, kLanes);
    if (stages.other == Type::f32) {
        value += load<Vector>(at.other, to, count);
    } else if (stages.other != Type::none) {
        const Whole other = stages.other == Type::s8
                                ? widened(load<Signed>(at.other, to, count))
                                : widened(load<Unsigned>(at.other, to, count));
        value += (as<Vector>(other) - at.other_zero) * at.other_scale;
    }
    value = value < stages.low ? all(stages.low) : value;
    value = value > stages.high ? all(stages.high) : value;
    if (stages.dst == Type::f32) return put(at.dst, to, count, value);
    if (stages.divided) value /= load<Vector>(columns.step, column, kLanes);
    const Coder coder(stages.dst == Type::s8, static_cast<float>(at.zero));
    put(at.dst, to, count, as<Signed>(coder(value)));
}

void Ending::store_codes(const EndingOperands &at, const EndingColumns &columns,
                         const std::int32_t *sums, Index rows, Index count, Index to,
                         Index stride) const {
    const Coder coder(stages_.dst == Type::s8, static_cast<float>(at.zero));
    auto *const dst = static_cast<std::byte *>(at.dst);
    for (Index column = 0; column < count; column += kLanes) {
        const Whole shift = load<Whole>(columns.shift, column, kLanes);
        const Vector scale = load<Vector>(columns.scale, column, kLanes);
        const Index some = std::min<Index>(kLanes, count - column);
        const std::int32_t *from = sums + column;
        std::byte *own = dst + to + column;
        for (Index row = 0; row < rows; ++row, from += kColumns, own += stride) {
            const Whole sum = load<Whole>(from, 0, kLanes) + shift;
            const auto bytes = as<Signed>(coder(as<Vector>(sum) * scale));
            if (some == kLanes) {
                put(own, 0, kLanes, bytes);
            } else {
                put(own, 0, some, bytes);
            }
        }
    }
}

void Ending::store(const EndingOperands &at, const EndingColumns &columns,
                   const std::int32_t *sums, Index rows, Index count, Index to,
                   Index stride) const {
    if (only_codes_) return store_codes(at, columns, sums, rows, count, to, stride);
    // Copies, which no store of results can change.
    const Stages stages = stages_;
    const EndingOperands own = at;
    for (Index row = 0; row < rows; ++row, to += stride, sums += kColumns) {
        Index column = 0;
        for (; column + kLanes <= count; column += kLanes)
            vector<true>(stages, own, columns, sums, column, to + column, kLanes);
        if (column < count)
            vector<false>(stages, own, columns, sums, column, to + column, count - column);
    }
}

}  // namespace vtensor::narrow
