// native/eigen/gather.cpp: elements at indexed positions.
#include <algorithm>

#include "indexed.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

template <class Number, class Element>
class Gather final : public Step {
public:
    explicit Gather(const Places &places)
        : Step("gather"), places_(places), count_(product(places.shape)) {
        check(places_);
        add_slot("src", VTENSOR_READ, places.elements, sizeof(Element));
        add_slot("indices", VTENSOR_READ, places.indices, sizeof(Number));
        add_slot("dst", VTENSOR_WRITE, times(count_, places.inner), sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *indices = static_cast<const Number *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        const Index inner = places_.inner;
        // Parts are pieces of the positions; if these are few, pieces of the elements at each
        // position.
        const Index parts = count_ < 64 ? std::max<Index>((inner + kPart - 1) / kPart, 1) : 1;
        parallel(count_ * parts, count_ * (inner + 1), [&](Index begin, Index end) {
            if (parts == 1) {
                move(src, indices, dst, begin, end, 0, inner);
                return;
            }
            for (Index piece = begin; piece < end; ++piece) {
                const Index at = piece / parts, first = piece % parts * kPart;
                move(src, indices, dst, at, at + 1, first, std::min(first + kPart, inner));
            }
        });
    }

    // Copies elements `first` to `stop` of each position from `begin` to `end`.
    void move(const Element *src, const Number *indices, Element *dst, Index begin, Index end,
              Index first, Index stop) const {
        const Index inner = places_.inner;
        if (inner == 1) {
            each_place(places_, indices, begin, end,
                       [&](Index place, Index which) { dst[which] = src[place]; });
        } else {
            each_place(places_, indices, begin, end, [&](Index place, Index which) {
                std::copy(src + place + first, src + place + stop, dst + which * inner + first);
            });
        }
    }

    static constexpr Index kPart = 1 << 14;

    Places places_;
    Index count_;
};

}  // namespace

Step *gather(const Places &places, Index index_bytes, Index item_bytes) {
    return with_index(index_bytes, [&]<class N>(Type<N>) {
        return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
            return new Gather<N, T>(places);
        });
    });
}

}  // namespace vtensor::eigen
