// native/eigen/blend.cpp: an image at another size: weighted sums of neighbours, axis by axis.
#include <algorithm>

#include "check.h"
#include "moves.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

template <class Element>
class Blending final : public Step {
public:
    explicit Blending(const std::vector<Blend> &axes) : Step("blend"), axes_(axes) {
        demand(!axes.empty(), "no axis is blended");
        Index between = 0;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            check(axes[i]);
            if (i == 0) continue;
            demand(from_size(axes[i]) == to_size(axes[i - 1]), "axes that do not fit together");
            between = std::max(between, from_size(axes[i]));
        }
        add_slot("src", VTENSOR_READ, from_size(axes.front()), sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, to_size(axes.back()), sizeof(Element));
        // Memory for the image between two axes; three and more axes need two at a time.
        room_ = (between + 15) / 16 * 16;
        if (axes.size() > 1) add_scratch(times(axes.size() > 2 ? 2 : 1, room_));
    }

private:
    static Index from_size(const Blend &axis) {
        return product({axis.outer, axis.from, axis.inner});
    }
    static Index to_size(const Blend &axis) {
        return product({axis.outer, static_cast<Index>(axis.ends.size()), axis.inner});
    }

    static void check(const Blend &axis) {
        demand(axis.near.size() == axis.weights.size(), "taps without weights");
        demand(std::ranges::is_sorted(axis.ends), "taps that end before they begin");
        const auto taps = static_cast<Index>(axis.near.size());
        demand(axis.ends.empty() || (axis.ends[0] >= 0 && axis.ends.back() <= taps),
               "taps that are not there");
        for (const Index near : axis.near)
            demand(near >= 0 && near < axis.from, "a tap beyond src");
    }

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        const std::size_t last = axes_.size() - 1;
        if (last == 0) {
            blend_axis(axes_[0], src, dst);
        } else if (room_ == 0) {
            std::fill_n(dst, to_size(axes_[last]), Element{0});
        } else {
            float *from = output(slots, 2), *to = from + (last > 1 ? room_ : 0);
            blend_axis(axes_[0], src, from);
            for (std::size_t i = 1; i < last; ++i, std::swap(from, to))
                blend_axis(axes_[i], from, to);
            blend_axis(axes_[last], from, dst);
        }
    }

    template <class From, class To>
    static void blend_axis(const Blend &axis, const From *src, To *dst) {
        const auto sizes = static_cast<Index>(axis.ends.size());
        const Index row = axis.inner;
        parallel(axis.outer * sizes, axis.outer * sizes * row, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Index o = piece / sizes, at = piece % sizes;
                const From *from = src + o * axis.from * row;
                const Index first = at == 0 ? 0 : axis.ends[at - 1], stop = axis.ends[at];
                if (row == 1)
                    dst[piece] = static_cast<To>(sum(axis, from, first, stop));
                else
                    sum_rows(axis, from, dst + piece * row, first, stop);
            }
        });
    }

    template <class From>
    static float sum(const Blend &axis, const From *src, Index first, Index stop) {
        float total = 0;
        for (Index tap = first; tap < stop; ++tap)
            total += static_cast<float>(src[axis.near[tap]]) * axis.weights[tap];
        return total;
    }

    template <class From, class To>
    static void sum_rows(const Blend &axis, const From *src, To *dst, Index first, Index stop) {
        float total[kStrip];
        for (Index at = 0; at < axis.inner; at += kStrip) {
            const Index count = std::min(kStrip, axis.inner - at);
            std::fill_n(total, count, 0.0F);
            for (Index tap = first; tap < stop; ++tap) {
                const From *from = src + axis.near[tap] * axis.inner + at;
                const float weight = axis.weights[tap];
                for (Index i = 0; i < count; ++i) total[i] += static_cast<float>(from[i]) * weight;
            }
            for (Index i = 0; i < count; ++i) dst[at + i] = static_cast<To>(total[i]);
        }
    }

    // Sums that fit into the L1 cache.
    static constexpr Index kStrip = 512;

    std::vector<Blend> axes_;
    Index room_ = 0;
};

}  // namespace

Step *blend(const std::string &dtype, const std::vector<Blend> &axes) {
    return with_fraction(dtype,
                         [&]<class T>(Type<T>) -> Step * { return new Blending<T>(axes); });
}

}  // namespace vtensor::eigen
