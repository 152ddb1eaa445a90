// native/eigen/pooling.cpp: the largest, or the mean, of each window.
#include <algorithm>
#include <limits>

#include "channels.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

class Pooling final : public Step {
public:
    Pooling(const std::string &kind, const Window &window, Ints end)
        : Step("pooling_" + kind), window_(window), end_(std::move(end)),
          largest_(kind == "max"), with_pads_(kind == "avg_include_padding") {
        check(window_, end_);
        demand(largest_ || with_pads_ || kind == "avg_exclude_padding", "no such pooling");
        pixels_ = dst_pixels(window_);
        add_slot("src", VTENSOR_READ, times(src_pixels(window_), window.channels));
        add_slot("dst", VTENSOR_WRITE, times(pixels_, window.channels));
    }

private:
    void run(void *const *slots) const override {
        const Index channels = window_.channels;
        parallel(pixels_, pixels_ * channels, [&](Index begin, Index end) {
            for (Index pixel = begin; pixel < end; ++pixel) {
                const Place at = place(window_, pixel);
                float *dst = output(slots, 1) + pixel * channels;
                for_each_block(channels, [&](auto &values, Index first) {
                    if (largest_) {
                        largest(input(slots, 0) + first, at, values);
                    } else {
                        average(input(slots, 0) + first, at, values);
                    }
                    like(values, dst + first) = values;
                });
            }
        });
    }

    template <class Values>
    void largest(const float *src, const Place &at, Values &values) const {
        values.setConstant(-std::numeric_limits<float>::infinity());
        for_each_tap(window_, at, [&](Index, Index pixel) {
            values = values.template max<Eigen::PropagateNaN>(
                like(values, src + pixel * window_.channels));
        });
    }

    template <class Values>
    void average(const float *src, const Place &at, Values &values) const {
        values.setZero();
        Index inside = 0;
        for_each_tap(window_, at, [&](Index, Index pixel) {
            ++inside;
            values += like(values, src + pixel * window_.channels);
        });
        values /= static_cast<float>(with_pads_ ? counted(at) : inside);
    }

    // The elements of the window that lie in the image or its pads.
    Index counted(const Place &at) const {
        Index all = 1;
        for (std::size_t i = 0; i < kSpatial; ++i) {
            const Index begin = at.at[i] * window_.strides[i];
            all *= within(window_, i, begin, window_.begin[i] + window_.src[i] + end_[i]).last;
        }
        return all;
    }

    Window window_;
    Ints end_;
    bool largest_, with_pads_;
    Index pixels_ = 0;
};

}  // namespace

Step *pooling(const std::string &kind, const Window &window, const Ints &end) {
    return new Pooling(kind, window, end);
}

}  // namespace vtensor::eigen
