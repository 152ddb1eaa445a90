// native/eigen/quantize.cpp: dynamic quantization: the scale follows from the values.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <mutex>

#include "boxes.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace vtensor::eigen {

namespace {

constexpr float kMost = 255.0F;

class DynamicQuantize final : public Step {
public:
    DynamicQuantize(Index size, const std::vector<Box> &pads)
        : Step("dynamic_quantize"), size_(size) {
        add_slot("src", VTENSOR_READ, size);
        add_slot("dst", VTENSOR_WRITE, size, 1);
        add_slot("scale", VTENSOR_WRITE, 1);
        add_slot("zero", VTENSOR_WRITE, 1, 1);
        for (const Box &box : pads) {
            demand(box.source < 0, "a pad is filled, not copied");
            if (product(box.shape) > 0) pads_.push_back(arranged(box, 0, size));
        }
    }

private:
    static constexpr Index kLanes = 64;
    static constexpr float kLeastScale = 0x1p-60F;

    // Lowers `low` and raises `high` to the least and the largest of n numbers; NaN do not count.
    static void widen(const float *src, Index n, float &low, float &high) {
        std::array<float, kLanes> least, most;
        least.fill(low);
        most.fill(high);
        const auto add = [&](const float *from, Index count) __attribute__((always_inline)) {
            for (Index lane = 0; lane < count; ++lane) {
                const float x = from[lane];
                least[lane] = x < least[lane] ? x : least[lane];
                most[lane] = x > most[lane] ? x : most[lane];
            }
        };
        Index i = 0;
        for (; i + kLanes <= n; i += kLanes) add(src + i, kLanes);
        add(src + i, n - i);
        low = *std::ranges::min_element(least);
        high = *std::ranges::max_element(most);
    }

    // Quantizes n numbers, of which divide(x) is x / scale; NaN becomes 0.
    template <class Divide>
    static void quantize_by(const Divide &divide, const float *src, std::uint8_t *dst, Index n,
                            float zero) {
        constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23: a sum with it has no fraction
        const float low = -zero, high = kMost - zero;
        const auto origin = static_cast<std::uint32_t>(zero) - std::bit_cast<std::uint32_t>(kWhole);
        for (Index i = 0; i < n; ++i) {
            float step = divide(src[i]);
            step = step > low ? step : low;
            step = step < high ? step : high;
            const auto bits = std::bit_cast<std::uint32_t>(step + kWhole);
            dst[i] = static_cast<std::uint8_t>(bits + origin);
        }
    }

    static void quantize(const float *src, std::uint8_t *dst, Index n, float scale, float zero) {
#if defined(__AVX512F__)
        // Where a division takes longer: the quotient by the reciprocal, corrected twice by the
        // exact remainder. The second time rounds it as a division does (Markstein), unless a
        // remainder underflows; with these scales, only quotients far below 1/2 have such ones.
        if (scale > kLeastScale && scale < 1 / kLeastScale) {
            const float reciprocal = 1 / scale;
            const auto correct = [=](float x, float quotient) __attribute__((always_inline)) {
                return __builtin_fmaf(__builtin_fmaf(-scale, quotient, x), reciprocal, quotient);
            };
            const auto divide = [=](float x) __attribute__((always_inline)) {
                return correct(x, correct(x, x * reciprocal));
            };
            return quantize_by(divide, src, dst, n, zero);
        }
#endif
        const auto divide = [=](float x) __attribute__((always_inline)) { return x / scale; };
        quantize_by(divide, src, dst, n, zero);
    }

    void run(void *const *slots) const override {
        const float *src = input(slots, 0);
        auto *dst = static_cast<std::uint8_t *>(slots[1]);
        float low = 0, high = 0;
        std::mutex guard;
        const auto find = [&](Index begin, Index end) {
            float least = 0, most = 0;
            widen(src + begin, end - begin, least, most);
            const std::scoped_lock lock(guard);
            low = std::min(low, least);
            high = std::max(high, most);
        };
        const auto store = [&](Index begin, Index end) {
            const float scale = high > low ? (high - low) / kMost : 1.0F;
            // fmin and fmax give a code of 0 to 255 also if `scale` is infinite or NaN.
            const float zero = std::fmin(std::fmax(std::nearbyint(-low / scale), 0.0F), kMost);
            if (begin == 0) {
                *output(slots, 2) = scale;
                *static_cast<std::uint8_t *>(slots[3]) = static_cast<std::uint8_t>(zero);
            }
            quantize(src + begin, dst + begin, end - begin, scale, zero);
        };
        in_two_phases(size_, size_, find, store);
        for (const Box &box : pads_) move(box, 1, nullptr, dst);
    }

    Index size_;
    std::vector<Box> pads_;
};

}  // namespace

Step *dynamic_quantize(Index size, const std::vector<Box> &pads) {
    return new DynamicQuantize(size, pads);
}

}  // namespace vtensor::eigen
