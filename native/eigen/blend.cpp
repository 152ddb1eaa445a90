// native/eigen/blend.cpp: an image at another size: weighted sums of neighbours, axis by axis.
#include <algorithm>

#include "check.h"
#include "moves.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

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
        add_slot("src", VTENSOR_READ, from_size(axes.front()));
        add_slot("dst", VTENSOR_WRITE, to_size(axes.back()));
        // What lies between two axes; of three and more there are two at a time.
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
        const float *from = input(slots, 0);
        if (axes_.size() > 1 && room_ == 0) {
            std::fill_n(output(slots, 1), to_size(axes_.back()), 0.0F);
            return;
        }
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            const bool last = i + 1 == axes_.size();
            float *to = last ? output(slots, 1)
                             : output(slots, 2) + (i % 2 == 0 ? 0 : room_);
            blend_axis(axes_[i], from, to);
            from = to;
        }
    }

    static void blend_axis(const Blend &axis, const float *src, float *dst) {
        const auto sizes = static_cast<Index>(axis.ends.size());
        const Index row = axis.inner;
        parallel(axis.outer * sizes, axis.outer * sizes * row, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Index o = piece / sizes, at = piece % sizes;
                const float *from = src + o * axis.from * row;
                float *to = dst + piece * row;
                const Index first = at == 0 ? 0 : axis.ends[at - 1];
                if (row == 1)
                    *to = sum(axis, from, first, axis.ends[at]);
                else
                    sum_rows(axis, from, to, first, axis.ends[at]);
            }
        });
    }

    static float sum(const Blend &axis, const float *src, Index first, Index stop) {
        float total = 0;
        for (Index tap = first; tap < stop; ++tap) total += src[axis.near[tap]] * axis.weights[tap];
        return total;
    }

    static void sum_rows(const Blend &axis, const float *src, float *dst, Index first,
                         Index stop) {
        std::fill_n(dst, axis.inner, 0.0F);
        for (Index tap = first; tap < stop; ++tap) {
            const float *from = src + axis.near[tap] * axis.inner;
            const float weight = axis.weights[tap];
            for (Index i = 0; i < axis.inner; ++i) dst[i] += from[i] * weight;
        }
    }

    std::vector<Blend> axes_;
    Index room_ = 0;
};

}  // namespace

Step *blend(const std::vector<Blend> &axes) { return new Blending(axes); }

}  // namespace vtensor::eigen
