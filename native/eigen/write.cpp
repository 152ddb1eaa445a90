// native/eigen/write.cpp: updates of cached rows, and MaxUnpool.
#include <algorithm>
#include <atomic>

#include "elements.h"
#include "indexed.h"
#include "moves.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

template <class Element>
class Overwrite final : public Step {
public:
    explicit Overwrite(const Cache &cache) : Step("overwrite"), cache_(cache) {
        const Index size = cache.axis.size, starts = cache.starts;
        demand(cache.count >= 0 && cache.count <= size, "more elements than the axis has");
        demand(cache.outer >= 0 && starts >= kNone, "a size is negative");
        demand(starts < 1 ? starts == kNone || cache.outer == 0 : cache.outer % starts == 0,
               "the rows do not fall into the batches");
        slab_ = times(size, cache.inner);
        add_slot("src", VTENSOR_READ, times(cache.outer, slab_), sizeof(Element));
        add_slot("update", VTENSOR_READ, product({cache.outer, cache.count, cache.inner}),
                 sizeof(Element));
        if (starts != kNone) add_slot("start", VTENSOR_READ, starts, sizeof(Index));
        add_slot("dst", VTENSOR_WRITE, times(cache.outer, slab_), sizeof(Element));
    }

private:
    static constexpr Index kNone = -1;

    void run(void *const *slots) const override {
        const bool given = cache_.starts != kNone;
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *update = static_cast<const Element *>(slots[1]);
        const auto *starts = given ? static_cast<const Index *>(slots[2]) : nullptr;
        auto *dst = static_cast<Element *>(slots[given ? 3 : 2]);
        const Index all = cache_.outer * slab_, inner = cache_.inner, count = cache_.count;
        if (count > 0)  // checks all starts before anything is written, also for empty rows
            for (Index at = 0; at < (given ? cache_.starts : 0); ++at) first(starts[at]);
        parallel(all, all,
                 [&](Index begin, Index end) { std::copy(src + begin, src + end, dst + begin); });
        if (count == 0) return;
        parallel(cache_.outer, cache_.outer * count * inner, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                const Index start =
                    first(given ? starts[row / (cache_.outer / cache_.starts)] : 0);
                for (Index t = 0; t < count; ++t)
                    std::copy_n(update + (row * count + t) * inner, inner,
                                dst + row * slab_ + place(start + t) * inner);
            }
        });
    }

    // Returns the first position that is written in a row. Throws BadInput if it, or the last one,
    // is out of range.
    Index first(Index start) const {
        if (cache_.circular) {
            const Index rest = start % cache_.axis.size;
            return rest < 0 ? rest + cache_.axis.size : rest;
        }
        placed(start, cache_.axis);
        placed(start + cache_.count - 1, cache_.axis);
        return start;
    }

    Index place(Index index) const {
        return cache_.circular ? index % cache_.axis.size : placed(index, cache_.axis);
    }

    Cache cache_;
    Index slab_ = 0;
};

template <class Element>
class Unpool final : public Step {
public:
    Unpool(Index layers, Index each, const Ints &counted, const Ints &dst)
        : Step("unpool"), layers_(layers), each_(each), counted_(counted), dst_(dst) {
        demand(counted.size() == 3 && dst.size() == 3, "three spatial dims");
        for (std::size_t dim = 0; dim < 3; ++dim)
            demand(counted[dim] <= dst[dim], "an image larger than dst");
        layer_ = product(counted);
        room_ = product(dst);
        all_ = times(layers, layer_);
        add_slot("src", VTENSOR_READ, product({layers, each}), sizeof(Element));
        add_slot("indices", VTENSOR_READ, product({layers, each}), sizeof(Index));
        add_slot("dst", VTENSOR_WRITE, times(layers, room_), sizeof(Element));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *indices = static_cast<const Index *>(slots[1]);
        auto *dst = static_cast<Element *>(slots[2]);
        std::atomic<bool> strays = false;
        parallel(layers_, layers_ * (each_ + room_), [&](Index begin, Index end) {
            std::fill(dst + begin * room_, dst + end * room_, Element{0});
            for (Index layer = begin; layer < end; ++layer)
                for (Index i = layer * each_; i < (layer + 1) * each_; ++i) {
                    if (is_in(indices[i], layer * layer_, layer_)) {
                        dst[place(indices[i])] = src[i];
                    } else if (is_in(indices[i], 0, all_)) {
                        strays.store(true, std::memory_order_relaxed);
                    }
                }
        });
        // Some indices are in other layers: write again in order, so that of equal indices the last
        // counts.
        if (!strays) return;
        for (Index i = 0; i < layers_ * each_; ++i)
            if (is_in(indices[i], 0, all_)) dst[place(indices[i])] = src[i];
    }

    // Returns whether an index is one of `size` positions from `begin` on, without overflow.
    static bool is_in(Index index, Index begin, Index size) {
        return static_cast<std::uint64_t>(index) - static_cast<std::uint64_t>(begin) <
               static_cast<std::uint64_t>(size);
    }

    // Returns the position in dst of an element of the image in which indices count.
    Index place(Index index) const {
        if (layer_ == room_) return index;
        const Index w = index % counted_[2], rows = index / counted_[2];
        const Index h = rows % counted_[1], slices = rows / counted_[1];
        const Index d = slices % counted_[0], layer = slices / counted_[0];
        return ((layer * dst_[0] + d) * dst_[1] + h) * dst_[2] + w;
    }

    Index layers_, each_;
    Ints counted_, dst_;
    Index layer_ = 0, room_ = 0, all_ = 0;
};

}  // namespace

Step *overwrite(const Cache &cache, Index item_bytes) {
    return with_bytes(item_bytes,
                      [&]<class T>(Type<T>) -> Step * { return new Overwrite<T>(cache); });
}

Step *unpool(Index layers, Index each, const Ints &counted, const Ints &dst, Index item_bytes) {
    return with_bytes(item_bytes, [&]<class T>(Type<T>) -> Step * {
        return new Unpool<T>(layers, each, counted, dst);
    });
}

}  // namespace vtensor::eigen
