// native/eigen/along.cpp: reversed sequences, triangles of matrices, running sums and products.
#include <algorithm>
#include <type_traits>

#include "check.h"
#include "moves.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

template <class Number, class Element>
class ReverseSequence final : public Step {
public:
    ReverseSequence(Index batch, Index time, Index inner)
        : Step("reverse_sequence"), batch_(batch), time_(time), inner_(inner) {
        const Index all = product({batch, time, inner});
        add_slot("src", VTENSOR_READ, all, sizeof(Element));
        add_slot("lengths", VTENSOR_READ, batch, sizeof(Number));
        add_slot("dst", VTENSOR_WRITE, all, sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *lengths = static_cast<const Number *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        for (Index b = 0; b < batch_; ++b)
            if (lengths[b] < 0 || lengths[b] > time_)
                throw BadInput("length " + std::to_string(lengths[b]) + " of sequence " +
                               std::to_string(b) + ", which has " + std::to_string(time_) +
                               " elements");
        parallel(batch_ * time_, batch_ * time_ * inner_, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                const Index b = row / time_, t = row % time_, length = lengths[b];
                const Index from = b * time_ + (t < length ? length - 1 - t : t);
                std::copy_n(src + from * inner_, inner_, dst + row * inner_);
            }
        });
    }

    Index batch_, time_, inner_;
};

template <class Element>
class Triangle final : public Step {
public:
    Triangle(Index matrices, Index rows, Index columns, Index k, bool upper)
        : Step("triangle"), all_(product({matrices, rows})), rows_(rows), columns_(columns),
          // A diagonal beyond every element means all or nothing.
          k_(std::clamp(k, -rows - 1, columns + 1)), upper_(upper) {
        add_slot("src", VTENSOR_READ, times(all_, columns), sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, times(all_, columns), sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        parallel(all_, all_ * columns_, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                // The first column of the upper triangle, or the end of the lower one.
                const Index cut = row % rows_ + k_ + (upper_ ? 0 : 1);
                const Index edge = std::clamp<Index>(cut, 0, columns_), at = row * columns_;
                const Index first = upper_ ? edge : 0, stop = upper_ ? columns_ : edge;
                std::fill_n(dst + at, first, Element{0});
                std::copy(src + at + first, src + at + stop, dst + at + first);
                std::fill_n(dst + at + stop, columns_ - stop, Element{0});
            }
        });
    }

    Index all_, rows_, columns_, k_;
    bool upper_;
};

template <class Element>
class Running final : public Step {
public:
    Running(Index outer, Index length, Index inner, bool product_of, bool exclusive, bool reverse)
        : Step("running"), outer_(outer), length_(length), inner_(inner), product_(product_of),
          exclusive_(exclusive), reverse_(reverse) {
        const Index all = product({outer, length, inner});
        add_slot("src", VTENSOR_READ, all, sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, all, sizeof(Element));
    }

private:
    using Product = typename Wide<Element>::type;
    // Floats are added up in f64.
    using Total = std::conditional_t<std::is_floating_point_v<Product>, double, Product>;
    // Elements next to one another whose totals fit into the L1 cache.
    static constexpr Index kStrip = 256;

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        const Index strips = (inner_ + kStrip - 1) / kStrip;
        parallel(outer_ * strips, outer_ * length_ * inner_, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Index first = piece % strips * kStrip;
                const Index at = piece / strips * length_ * inner_ + first;
                go_along(src + at, dst + at, std::min(kStrip, inner_ - first));
            }
        });
    }

    void go_along(const Element *src, Element *dst, Index count) const {
        Total totals[kStrip];
        std::fill_n(totals, count, static_cast<Total>(product_ ? 1 : 0));
        for (Index i = 0; i < length_; ++i) {
            const Index row = (reverse_ ? length_ - 1 - i : i) * inner_;
            for (Index c = 0; c < count; ++c) {
                const Total before = totals[c], one = static_cast<Total>(src[row + c]);
                totals[c] = product_ ? static_cast<Product>(before * one)
                                     : static_cast<Total>(before + one);
                dst[row + c] = static_cast<Element>(exclusive_ ? before : totals[c]);
            }
        }
    }

    Index outer_, length_, inner_;
    bool product_, exclusive_, reverse_;
};

}  // namespace

Step *reverse_sequence(Index batch, Index time, Index inner, Index index_bytes, Index item_bytes) {
    return with_index(index_bytes, [&]<class N>(Type<N>) {
        return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
            return new ReverseSequence<N, T>(batch, time, inner);
        });
    });
}

Step *triangle(Index matrices, Index rows, Index columns, Index k, bool upper, Index item_bytes) {
    product({matrices, rows, columns});
    demand(std::max(rows, columns) < INT64_MAX / 4, "sizes overflow");
    return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
        return new Triangle<T>(matrices, rows, columns, k, upper);
    });
}

Step *running(const std::string &dtype, Index outer, Index length, Index inner, bool product,
              bool exclusive, bool reverse) {
    return with_type(dtype, [&]<class T>(Type<T>) -> Step * {
        return new Running<T>(outer, length, inner, product, exclusive, reverse);
    });
}

}  // namespace vtensor::eigen
