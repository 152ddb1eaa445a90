// native/eigen/extremes.cpp: positions of the largest and the smallest elements along an axis.
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "check.h"
#include "moves.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

// Returns whether `a` goes before `b` as NumPy compares: NaN goes before all.
template <bool Largest, class T>
bool beats(T a, T b) {
    return (Largest ? a > b : a < b) || (is_nan(a) && !is_nan(b));
}

// The type in which elements are compared.
template <class Element>
using Compared =
    std::conditional_t<std::is_integral_v<Element>, Element, typename Wide<Element>::type>;

// Elements that are compared together.
constexpr Index kLanes = 64;

// Finds the extreme value and whether there is a NaN, some lanes at a time; then the position.
template <bool Largest, class Element>
Index place_in_row(const Element *src, Index length, bool last) {
    using Value = Compared<Element>;
    Value lanes[kLanes];
    unsigned odd = 0;
    std::fill_n(lanes, kLanes, static_cast<Value>(src[0]));
    Index i = 0;
    for (; i + kLanes <= length; i += kLanes)
        for (Index lane = 0; lane < kLanes; ++lane) {
            const auto value = static_cast<Value>(src[i + lane]);
            const bool better = Largest ? value > lanes[lane] : value < lanes[lane];
            lanes[lane] = better ? value : lanes[lane];
            odd |= static_cast<unsigned>(is_nan(value));
        }
    Value best = lanes[0];
    for (const Value value : lanes) best = beats<Largest>(value, best) ? value : best;
    for (; i < length; ++i) {
        const auto value = static_cast<Value>(src[i]);
        best = beats<Largest>(value, best) ? value : best;
    }
    const bool none = odd != 0 || is_nan(best);
    const auto is_it = [&](Element one) {
        const auto value = static_cast<Value>(one);
        return none ? is_nan(value) : value == best;
    };
    if (last) {
        Index at = length - 1;
        while (at > 0 && !is_it(src[at])) --at;
        return at;
    }
    Index at = 0;
    for (; !none && at + kLanes <= length; at += kLanes) {
        unsigned found = 0;
        for (Index lane = 0; lane < kLanes; ++lane)
            found |= static_cast<unsigned>(static_cast<Value>(src[at + lane]) == best);
        if (found != 0) break;
    }
    return std::find_if(src + at, src + length, is_it) - src;
}

template <class Element, bool Largest>
class Place final : public Step {
public:
    Place(Index outer, Index length, Index inner, bool last)
        : Step(Largest ? "argmax" : "argmin"), outer_(outer), length_(length), inner_(inner),
          last_(last) {
        demand(length > 0, "the extreme of nothing");
        demand(length < Index{1} << 32, "an axis of more elements than 32 bits count");
        add_slot("src", VTENSOR_READ, product({outer, length, inner}), sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, product({outer, inner}), sizeof(Index));
    }

private:
    using Value = Compared<Element>;
    static constexpr Index kStrip = 128;

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Index *>(slots[1]);
        const Index strips = (inner_ + kStrip - 1) / kStrip;
        parallel(outer_ * strips, outer_ * length_ * inner_, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Index o = piece / strips, first = piece % strips * kStrip;
                const Element *from = src + o * length_ * inner_ + first;
                if (inner_ == 1)
                    dst[o] = place_in_row<Largest>(from, length_, last_);
                else
                    of_strip(from, dst + o * inner_ + first, std::min(kStrip, inner_ - first));
            }
        });
    }

    void of_strip(const Element *src, Index *dst, Index count) const {
        Value best[kStrip];
        std::uint32_t at[kStrip] = {};  // as wide as most values, so that lanes match
        for (Index c = 0; c < count; ++c) best[c] = static_cast<Value>(src[c]);
        for (Index i = 1; i < length_; ++i)
            for (Index c = 0; c < count; ++c) {
                const auto value = static_cast<Value>(src[i * inner_ + c]);
                const bool takes =
                    last_ ? !beats<Largest>(best[c], value) : beats<Largest>(value, best[c]);
                best[c] = takes ? value : best[c];
                at[c] = takes ? static_cast<std::uint32_t>(i) : at[c];
            }
        std::copy_n(at, count, dst);
    }

    Index outer_, length_, inner_;
    bool last_;
};

// Writes 1 at the first of the largest elements of each row, 0 elsewhere.
template <class Element>
class Hard final : public Step {
public:
    Hard(Index rows, Index length) : Step("hardmax"), rows_(rows), length_(length) {
        add_slot("src", VTENSOR_READ, product({rows, length}), sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, product({rows, length}), sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        if (length_ == 0) return;
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        parallel(rows_, 2 * rows_ * length_, [&](Index begin, Index end) {
            for (Index at = begin * length_; at < end * length_; at += length_) {
                const Index place = place_in_row<true>(src + at, length_, false);
                std::fill_n(dst + at, length_, static_cast<Element>(0));
                dst[at + place] = static_cast<Element>(1);
            }
        });
    }

    Index rows_, length_;
};

// Returns a number that is larger for larger elements, and largest for NaN; -0 equals 0.
template <class T>
std::uint64_t rank_of(T element) {
    if constexpr (std::is_integral_v<T>) {
        if constexpr (std::is_signed_v<T>)
            return static_cast<std::uint64_t>(static_cast<Index>(element)) ^ (1ULL << 63);
        return static_cast<std::uint64_t>(element);
    } else {
        const auto value = static_cast<double>(element);
        if (std::isnan(value)) return ~0ULL;
        const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // makes 0 of -0
        return bits >> 63 ? ~bits : bits | (1ULL << 63);
    }
}

// The order of the results: largest rank first, among equal ranks the first element.
struct Ranked {
    std::uint64_t rank;
    Index at;

    bool operator<(const Ranked &other) const {
        return rank > other.rank || (rank == other.rank && at < other.at);
    }
};

template <class Element>
class Top final : public Step {
public:
    Top(Index outer, Index length, Index inner, Index count, bool largest)
        : Step("top"), rows_(product({outer, inner})), length_(length), inner_(inner),
          count_(count), largest_(largest) {
        demand(count >= 0 && count <= length, "more elements than there are");
        add_slot("src", VTENSOR_READ, times(rows_, length), sizeof(Element));
        add_slot("values", VTENSOR_WRITE, times(rows_, count), sizeof(Element));
        add_slot("indices", VTENSOR_WRITE, times(rows_, count), sizeof(Index));
        if (rows_ == 0 || count == 0) return;
        // Each thread ranks a row in memory of its own.
        parts_ = std::min<Index>(rows_, omp_get_max_threads());
        add_scratch(times(times(parts_, length), sizeof(Ranked) / sizeof(float)));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *values = static_cast<Element *>(slots[1]);
        auto *indices = static_cast<Index *>(slots[2]);
        parallel(parts_, rows_ * length_, [&](Index begin, Index end) {
            auto *ranked = static_cast<Ranked *>(slots[3]) + begin * length_;
            for (Index row = rows_ * begin / parts_; row < rows_ * end / parts_; ++row) {
                const Index o = row / inner_, i = row % inner_;
                const Index to = o * count_ * inner_ + i;
                pick(src + o * length_ * inner_ + i, values + to, indices + to, ranked);
            }
        });
    }

    void pick(const Element *src, Element *values, Index *indices, Ranked *ranked) const {
        for (Index at = 0; at < length_; ++at) {
            const std::uint64_t rank = rank_of(src[at * inner_]);
            ranked[at] = {largest_ ? rank : ~rank, at};
        }
        if (count_ < length_) std::nth_element(ranked, ranked + count_, ranked + length_);
        std::sort(ranked, ranked + count_);
        for (Index k = 0; k < count_; ++k) {
            values[k * inner_] = src[ranked[k].at * inner_];
            indices[k * inner_] = ranked[k].at;
        }
    }

    Index rows_, length_, inner_, count_, parts_ = 0;
    bool largest_;
};

}  // namespace

Step *extreme_place(const std::string &dtype, Index outer, Index length, Index inner, bool largest,
                    bool last) {
    return with_type(dtype, [&]<class T>(Type<T>) -> Step * {
        if (largest) return new Place<T, true>(outer, length, inner, last);
        return new Place<T, false>(outer, length, inner, last);
    });
}

Step *hardmax(const std::string &dtype, Index rows, Index length) {
    return with_type(dtype,
                     [&]<class T>(Type<T>) -> Step * { return new Hard<T>(rows, length); });
}

Step *top(const std::string &dtype, Index outer, Index length, Index inner, Index count,
          bool largest) {
    return with_type(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Top<T>(outer, length, inner, count, largest);
    });
}

}  // namespace vtensor::eigen
