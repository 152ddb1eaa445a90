// native/eigen/align.cpp: RoiAlign: boxes cut out of images and resampled to one size.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "indexed.h"
#include "moves.h"
#include "parallel.h"
#include "elements.h"

namespace vtensor::eigen {

namespace {

// A sampled position along one dim: its two neighbours and their weights.
struct Between {
    Index low, high;
    float near, far;
    bool there;
};

// The coordinates of boxes' corners, read from their own element type.
struct Corner {
    std::uint32_t bytes;
    float (*value)(const void *corners, Index at);
};

template <class T>
float coordinate(const void *corners, Index at) {
    return static_cast<float>(static_cast<const T *>(corners)[at]);
}

template <class Element, class Number>
class RoiAlign final : public Step {
public:
    RoiAlign(const Align &align, const Corner &corner)
        : Step("roi_align"), align_(align), corner_(corner), images_{align.images, 0, "N"} {
        demand(align.height > 0 && align.width > 0, "there are no elements to sample");
        demand(align.rows > 0 && align.columns > 0, "no bins");
        demand(align.samples >= 0 && align.most > 0, "no places");
        const Index bins = product({align.boxes, align.channels, align.rows, align.columns});
        add_slot("src", VTENSOR_READ,
                 product({align.images, align.channels, align.height, align.width}),
                 sizeof(Element));
        add_slot("boxes", VTENSOR_READ, times(align.boxes, 4), corner.bytes);
        add_slot("image", VTENSOR_READ, align.boxes, sizeof(Number));
        add_slot("dst", VTENSOR_WRITE, bins, sizeof(Element));
        if (bins == 0) return;
        parts_ = std::min<Index>(align.boxes, omp_get_max_threads());
        // The sampled positions along both dims of a box, for each thread.
        add_scratch(times(times(parts_, 2 * align.most), sizeof(Between) / sizeof(float)));
    }

private:
    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        const auto *image = static_cast<const Number *>(slots[2]);
        auto *dst = static_cast<Element *>(slots[3]);
        const Index bins = align_.rows * align_.columns * align_.channels;
        parallel(parts_, align_.boxes * bins * 8, [&](Index begin, Index end) {
            auto *room = static_cast<Between *>(slots[4]) + begin * 2 * align_.most;
            for (Index r = align_.boxes * begin / parts_; r < align_.boxes * end / parts_; ++r) {
                const Index n = placed(static_cast<Index>(image[r]), images_);
                const Index pixels = align_.height * align_.width;
                align_box(src + n * align_.channels * pixels, slots[1], r, dst + r * bins, room);
            }
        });
    }

    void align_box(const Element *src, const void *boxes, Index box, Element *dst,
                   Between *room) const {
        const auto side = [&](Index at) {
            return corner_.value(boxes, box * 4 + at) * align_.scale;
        };
        Between *down = room, *across = room + align_.most;
        const Index tall = find(side(1), side(3), align_.rows, align_.height, down);
        const Index wide = find(side(0), side(2), align_.columns, align_.width, across);
        const Index pixels = align_.height * align_.width;
        for (Index c = 0; c < align_.channels; ++c)
            for (Index i = 0; i < align_.rows; ++i)
                for (Index j = 0; j < align_.columns; ++j)
                    *dst++ = static_cast<Element>(
                        tall * wide == 0 ? 0.0F : of_bin(src + c * pixels, down + i * tall, tall,
                                                         across + j * wide, wide));
    }

    // Finds the sampled positions of all bins along one dim, and returns how many each bin has.
    Index find(float begin, float end, Index bins, Index size, Between *places) const {
        const float span = align_.half_pixel ? end - begin : std::max(end - begin, 1.0F);
        const auto count = static_cast<float>(bins);
        const float spanned = align_.samples > 0 ? static_cast<float>(align_.samples)
                                                 : std::max(std::ceil(span / count), 0.0F);
        if (!(spanned * count <= static_cast<float>(align_.most))) too_many(span, spanned * count);
        const auto many = static_cast<Index>(spanned);
        const double first = align_.half_pixel ? begin - 0.5 : begin;
        for (Index at = 0; at < bins * many; ++at) {
            const double inside = (static_cast<double>(at % many) + 0.5) / static_cast<double>(many);
            const double bin = static_cast<double>(at / many) + inside;
            places[at] = between(first + bin * span / static_cast<double>(bins), size);
        }
        return many;
    }

    static Between between(double place, Index size) {
        if (!(place >= -1 && place <= static_cast<double>(size))) return {0, 0, 0, 0, false};
        const double inside = std::clamp(place, 0.0, static_cast<double>(size - 1));
        const auto low = static_cast<Index>(inside);
        const auto far = static_cast<float>(inside - static_cast<double>(low));
        return {low, std::min(low + 1, size - 1), 1 - far, far, true};
    }

    // Returns the larger one; NaN is the largest.
    static float larger(float a, float b) { return a > b || a != a ? a : b; }

    float of_bin(const Element *src, const Between *down, Index tall, const Between *across,
                 Index wide) const {
        float total = 0, most = 0;
        bool first = true;
        for (Index i = 0; i < tall; ++i)
            for (Index j = 0; j < wide; ++j) {
                const Between &y = down[i], &x = across[j];
                float sum = 0, largest = 0;
                if (y.there && x.there) {
                    const Element *low = src + y.low * align_.width;
                    const Element *high = src + y.high * align_.width;
                    const float a = static_cast<float>(low[x.low]) * (y.near * x.near);
                    const float b = static_cast<float>(low[x.high]) * (y.near * x.far);
                    const float c = static_cast<float>(high[x.low]) * (y.far * x.near);
                    const float d = static_cast<float>(high[x.high]) * (y.far * x.far);
                    sum = a + b + c + d;
                    largest = larger(larger(a, b), larger(c, d));
                }
                total += sum;
                most = first ? largest : larger(most, largest);
                first = false;
            }
        return align_.largest ? most : total / static_cast<float>(tall * wide);
    }

    [[noreturn]] void too_many(float span, float places) const {
        char text[256];
        std::snprintf(text, sizeof text,
                      "a box spans %g pixels, and would be sampled at %g places along a dim; %lld "
                      "at most: to fix: smaller boxes or sampling_ratio",
                      static_cast<double>(span), static_cast<double>(places),
                      static_cast<long long>(align_.most));
        throw BadInput(text);
    }

    Align align_;
    Corner corner_;
    Addressed images_;
    Index parts_ = 0;
};

}  // namespace

Step *roi_align(const std::string &dtype, const std::string &box_dtype, const Align &align,
                Index index_bytes) {
    const Corner corner = with_fraction(
        box_dtype, []<class T>(Type<T>) { return Corner{sizeof(T), coordinate<T>}; });
    return with_fraction(dtype, [&]<class T>(Type<T>) {
        return with_index(index_bytes, [&]<class N>(Type<N>) -> Step * {
            return new RoiAlign<T, N>(align, corner);
        });
    });
}

}  // namespace vtensor::eigen
