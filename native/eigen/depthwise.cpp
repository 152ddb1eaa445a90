// native/eigen/depthwise.cpp: depthwise convolution.
#include <cstdint>
#include <string>

#include "channels.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// T: float, or unsigned integers that wrap around (the bits of s32).
template <class T>
class Depthwise final : public Step {
public:
    Depthwise(const Window &window, Index multiplier)
        : Step("depthwise"), window_(window), multiplier_(multiplier) {
        check(window_);
        demand(multiplier >= 0, "a size is negative");
        outputs_ = times(window.channels, multiplier);
        pixels_ = dst_pixels(window_);
        add_slot("src", VTENSOR_READ, times(src_pixels(window_), window.channels));
        add_slot("weights", VTENSOR_READ, times(taps(window_), outputs_));
        add_slot("dst", VTENSOR_WRITE, times(pixels_, outputs_));
    }

private:
    void run(void *const *slots) const override {
        const Index work = pixels_ * outputs_ * taps(window_);
        const auto *src = static_cast<const T *>(slots[0]);
        const auto *weights = static_cast<const T *>(slots[1]);
        parallel(pixels_, work, [&](Index begin, Index end) {
            for (Index pixel = begin; pixel < end; ++pixel) {
                T *dst = static_cast<T *>(slots[2]) + pixel * outputs_;
                if (multiplier_ == 1) {
                    one_each(src, weights, place(window_, pixel), dst);
                } else {
                    several_each(src, weights, place(window_, pixel), dst);
                }
            }
        });
    }

    void one_each(const T *src, const T *weights, const Place &at, T *dst) const {
        for_each_block<T>(outputs_, [&](auto &sum, Index first) {
            sum.setZero();
            for_each_tap(window_, at, [&](Index tap, Index pixel) {
                sum += like(sum, src + pixel * outputs_ + first) *
                       like(sum, weights + tap * outputs_ + first);
            });
            like(sum, dst + first) = sum;
        });
    }

    void several_each(const T *src, const T *weights, const Place &at, T *dst) const {
        using Kernels = Eigen::Map<const Eigen::Array<T, Eigen::Dynamic, 1>>;
        for (Index channel = 0; channel < window_.channels; ++channel) {
            Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>> sum(dst + channel * multiplier_, multiplier_);
            sum.setZero();
            for_each_tap(window_, at, [&](Index tap, Index pixel) {
                sum += src[pixel * window_.channels + channel] *
                       Kernels(weights + tap * outputs_ + channel * multiplier_, multiplier_);
            });
        }
    }

    Window window_;
    Index multiplier_, outputs_ = 0, pixels_ = 0;
};

}  // namespace

Step *depthwise(const std::string &type, const Window &window, Index multiplier) {
    if (type == "f32") return new Depthwise<float>(window, multiplier);
    demand(type == "s32", "a convolution of f32 or s32");
    return new Depthwise<std::uint32_t>(window, multiplier);
}

}  // namespace vtensor::eigen
