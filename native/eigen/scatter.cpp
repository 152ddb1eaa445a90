// native/eigen/scatter.cpp: elements written to indexed positions, and one-hot vectors.
#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "indexed.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

// Combinations of the former element of dst and the update. Except by Replace, the result is NaN if
// either is.
struct Replace {
    template <class T>
    static T of(T, T update) {
        return update;
    }
};
struct Sum {
    template <class T>
    static T of(T a, T b) {
        using W = typename Wide<T>::type;
        return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    }
};
struct Product {
    template <class T>
    static T of(T a, T b) {
        // Short unsigned integers are promoted to signed ones, whose product may overflow.
        using W = std::conditional_t<std::is_integral_v<T>, std::uint64_t, typename Wide<T>::type>;
        return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    }
};
struct Larger {
    template <class T>
    static T of(T a, T b) {
        return b > a || is_nan(b) ? b : a;
    }
};
struct Smaller {
    template <class T>
    static T of(T a, T b) {
        return b < a || is_nan(b) ? b : a;
    }
};

// All of a scatter but the elements' types, which would otherwise be compiled for each of them.
class Scatter : public Step {
public:
    Scatter(const Places &places, Index index_bytes, Index item_bytes)
        : Step("scatter"), places_(places), count_(product(places.shape)),
          item_bytes_(item_bytes) {
        check(places_);
        const auto bytes = static_cast<std::uint32_t>(item_bytes);
        add_slot("src", VTENSOR_READ, places.elements, bytes);
        add_slot("indices", VTENSOR_READ, places.indices, static_cast<std::uint32_t>(index_bytes));
        add_slot("updates", VTENSOR_READ, times(count_, places.inner), bytes);
        add_slot("dst", VTENSOR_WRITE, places.elements, bytes);
        if (count_ > 0) split_ = apart(places);
        if (split_ >= 0) behind_ = product({places.shape.begin() + split_ + 1, places.shape.end()});
    }

protected:
    const Places &places() const { return places_; }

private:
    // Returns an axis along which positions of different indices never coincide, or -1 if none is
    // known. There is one if the strides determine all indices from an offset, as digits are
    // determined by a number. It is the first that is long enough for all threads, else the
    // longest.
    static Index apart(const Places &places) {
        std::vector<std::pair<Index, Index>> digits{{1, places.inner}};
        for (const Addressed &axis : places.axes) digits.emplace_back(axis.stride, axis.size);
        for (std::size_t i = 0; i < places.shape.size(); ++i)
            if (places.bases[i] > 0) digits.emplace_back(places.bases[i], places.shape[i]);
        std::ranges::sort(digits);
        Index reached = 1;
        for (const auto &[stride, size] : digits) {
            if (size > 1 && stride < reached) return -1;
            reached = plus(reached, times(std::max<Index>(size, 1) - 1, stride));
        }
        Index found = -1, most = 1;
        for (std::size_t i = 0; i < places.shape.size(); ++i)
            if (places.bases[i] > 0 && places.shape[i] > most && most < omp_get_max_threads()) {
                found = static_cast<Index>(i);
                most = places.shape[i];
            }
        return found;
    }

    void run(void *const *slots) const override {
        const auto *src = static_cast<const std::byte *>(slots[0]);
        auto *dst = static_cast<std::byte *>(slots[3]);
        parallel(places_.elements, places_.elements, [&](Index begin, Index end) {
            std::copy(src + begin * item_bytes_, src + end * item_bytes_,
                      dst + begin * item_bytes_);
        });
        const Index inner = places_.inner, all = count_ * (inner + 1);
        if (split_ >= 0) {
            const Index width = places_.shape[static_cast<std::size_t>(split_)];
            parallel(width, all, [&](Index begin, Index end) {
                for (Index first = 0; first < count_; first += width * behind_)
                    put(slots, first + begin * behind_, first + end * behind_, 0, inner);
            });
        } else {
            parallel(std::max<Index>(inner / kPart, 1), all, [&](Index begin, Index end) {
                const Index stop = end == std::max<Index>(inner / kPart, 1) ? inner : end * kPart;
                put(slots, 0, count_, begin * kPart, stop);
            });
        }
    }

    // Writes the elements `first` to `stop` of the positions from `begin` to `end`, in order.
    virtual void put(void *const *slots, Index begin, Index end, Index first,
                     Index stop) const = 0;

    static constexpr Index kPart = 64;

    Places places_;
    Index count_, item_bytes_, split_ = -1, behind_ = 1;
};

template <class Number, class Element, class Merge>
class Merging final : public Scatter {
public:
    explicit Merging(const Places &places) : Scatter(places, sizeof(Number), sizeof(Element)) {}

private:
    void put(void *const *slots, Index begin, Index end, Index first, Index stop) const override {
        const auto *updates = static_cast<const Element *>(slots[2]);
        auto *dst = static_cast<Element *>(slots[3]);
        const Index inner = places().inner;
        each_place(places(), static_cast<const Number *>(slots[1]), begin, end,
                   [&](Index place, Index which) {
                       const Element *from = updates + which * inner;
                       for (Index i = first; i < stop; ++i)
                           dst[place + i] = Merge::of(dst[place + i], from[i]);
                   });
    }
};

template <class Number, class Element>
class OneHot final : public Step {
public:
    OneHot(Index outer, Index depth, Index inner)
        : Step("one_hot"), outer_(outer), depth_(depth), inner_(inner) {
        add_slot("indices", VTENSOR_READ, product({outer, inner}), sizeof(Number));
        add_slot("values", VTENSOR_READ, 2, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, product({outer, depth, inner}), sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        const auto *indices = static_cast<const Number *>(slots[0]);
        const auto *values = static_cast<const Element *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        const Index slab = depth_ * inner_;
        parallel(outer_, outer_ * slab, [&](Index begin, Index end) {
            std::fill(dst + begin * slab, dst + end * slab, values[0]);
            for (Index o = begin; o < end; ++o)
                for (Index i = 0; i < inner_; ++i) {
                    const Index given = indices[o * inner_ + i];
                    const Index place = given < 0 ? given + depth_ : given;
                    if (place >= 0 && place < depth_)
                        dst[o * slab + place * inner_ + i] = values[1];
                }
        });
    }

    Index outer_, depth_, inner_;
};

template <class N, class T>
Step *merging(const Places &places, const std::string &reduction) {
    if (reduction == "add") return new Merging<N, T, Sum>(places);
    if (reduction == "mul") return new Merging<N, T, Product>(places);
    if (reduction == "max") return new Merging<N, T, Larger>(places);
    if (reduction == "min") return new Merging<N, T, Smaller>(places);
    refuse("no reduction " + reduction);
}

// Returns the bytes of a type that is only moved, by its name or number of bytes.
Index bytes_of(const std::string &dtype) {
    for (const Index bytes : {1, 2, 4, 8})
        if (dtype == std::to_string(bytes)) return bytes;
    return with_type(dtype, []<class T>(Type<T>) { return static_cast<Index>(sizeof(T)); });
}

}  // namespace

Step *scatter(const Places &places, Index index_bytes, const std::string &dtype,
              const std::string &reduction) {
    return with_index(index_bytes, [&]<class N>(Type<N>) {
        if (reduction == "none")
            return with_bytes(bytes_of(dtype), [&]<class T>(Type<T>) -> Step * {
                return new Merging<N, T, Replace>(places);
            });
        return with_type(dtype,
                         [&]<class T>(Type<T>) { return merging<N, T>(places, reduction); });
    });
}

Step *one_hot(Index outer, Index depth, Index inner, Index index_bytes, Index item_bytes) {
    return with_index(index_bytes, [&]<class N>(Type<N>) {
        return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
            return new OneHot<N, T>(outer, depth, inner);
        });
    });
}

}  // namespace vtensor::eigen
