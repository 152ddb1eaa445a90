// native/eigen/extremes.cpp: where the largest and the smallest elements along an axis are.
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

// Whether `a` goes before `b`, as NumPy compares: NaN goes before all.
template <bool Largest, class T>
bool beats(T a, T b) {
    return (Largest ? a > b : a < b) || (is_nan(a) && !is_nan(b));
}

template <class Element, bool Largest>
class Place final : public Step {
public:
    Place(Index outer, Index length, Index inner, bool last)
        : Step(Largest ? "argmax" : "argmin"), outer_(outer), length_(length), inner_(inner),
          last_(last) {
        demand(length > 0, "the extreme of nothing");
        add_slot("src", VTENSOR_READ, product({outer, length, inner}), sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, product({outer, inner}), sizeof(Index));
    }

private:
    // What elements are compared as.
    using Value = std::conditional_t<std::is_integral_v<Element>, Element,
                                     typename Wide<Element>::type>;
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
                    dst[o] = of_row(from);
                else
                    of_strip(from, dst + o * inner_ + first, std::min(kStrip, inner_ - first));
            }
        });
    }

    // The extreme value first, eight lanes at a time, then where it is.
    Index of_row(const Element *src) const {
        constexpr Index kLanes = 8;
        Value lanes[kLanes];
        std::fill_n(lanes, kLanes, static_cast<Value>(src[0]));
        Index i = 0;
        for (; i + kLanes <= length_; i += kLanes)
            for (Index lane = 0; lane < kLanes; ++lane) {
                const auto value = static_cast<Value>(src[i + lane]);
                lanes[lane] = beats<Largest>(value, lanes[lane]) ? value : lanes[lane];
            }
        Value best = lanes[0];
        for (const Value value : lanes) best = beats<Largest>(value, best) ? value : best;
        for (; i < length_; ++i) {
            const auto value = static_cast<Value>(src[i]);
            best = beats<Largest>(value, best) ? value : best;
        }
        const auto is_it = [best](Element one) {
            const auto value = static_cast<Value>(one);
            return value == best || (is_nan(value) && is_nan(best));
        };
        if (!last_) return std::find_if(src, src + length_, is_it) - src;
        Index at = length_ - 1;
        while (at > 0 && !is_it(src[at])) --at;
        return at;
    }

    void of_strip(const Element *src, Index *dst, Index count) const {
        Value best[kStrip];
        for (Index c = 0; c < count; ++c) best[c] = static_cast<Value>(src[c]);
        std::fill_n(dst, count, Index{0});
        for (Index i = 1; i < length_; ++i)
            for (Index c = 0; c < count; ++c) {
                const auto value = static_cast<Value>(src[i * inner_ + c]);
                const bool takes =
                    last_ ? !beats<Largest>(best[c], value) : beats<Largest>(value, best[c]);
                best[c] = takes ? value : best[c];
                dst[c] = takes ? i : dst[c];
            }
    }

    Index outer_, length_, inner_;
    bool last_;
};

// A number that is larger where the element is; NaN is the largest, and -0 is 0.
template <class T>
std::uint64_t rank_of(T element) {
    if constexpr (std::is_integral_v<T>) {
        if constexpr (std::is_signed_v<T>)
            return static_cast<std::uint64_t>(static_cast<Index>(element)) ^ (1ULL << 63);
        return static_cast<std::uint64_t>(element);
    } else {
        const auto value = static_cast<double>(element);
        if (std::isnan(value)) return ~0ULL;
        const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // of -0 it makes 0
        return bits >> 63 ? ~bits : bits | (1ULL << 63);
    }
}

// The order in which elements are picked: the largest rank first, of equal ones the first.
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
        // Each part has a row of its own to rank in.
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

Step *top(const std::string &dtype, Index outer, Index length, Index inner, Index count,
          bool largest) {
    return with_type(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Top<T>(outer, length, inner, count, largest);
    });
}

}  // namespace vtensor::eigen
