// native/eigen/pooling.cpp: maximum, mean or norm of each window.
#include <algorithm>
#include <cmath>
#include <limits>

#include "channels.h"
#include "check.h"
#include "kernels.h"
#include "parallel.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// Elements that are added up in f32 before their sum is added in f64.
constexpr Index kDeep = 64;

class Pooling final : public Step {
public:
    Pooling(const std::string &kind, const Window &window, Ints end, float power)
        : Step("pooling_" + kind), window_(window), end_(std::move(end)), power_(power),
          largest_(kind == "max"), norm_(kind == "lp"), with_pads_(kind == "avg_include_padding") {
        check(window_, end_);
        demand(largest_ || norm_ || with_pads_ || kind == "avg_exclude_padding",
               "no such pooling");
        demand(!norm_ || power >= 1, "a norm of less than 1");
        pixels_ = dst_pixels(window_);
        add_slot("src", VTENSOR_READ, times(src_pixels(window_), window.channels));
        add_slot("dst", VTENSOR_WRITE, times(pixels_, window.channels));
    }

private:
    void run(void *const *slots) const override {
        const Index channels = window_.channels, strips = (channels + kMany - 1) / kMany;
        const Index work = pixels_ * channels * std::min(taps(window_), product(window_.src));
        parallel(pixels_ * strips, work, [&](Index begin, Index end) {
            for (Index piece = begin; piece < end; ++piece) {
                const Place at = place(window_, piece / strips);
                const Index strip = piece % strips * kMany;
                const float *src = input(slots, 0) + strip;
                float *dst = output(slots, 1) + piece / strips * channels + strip;
                for_each_block(std::min<Index>(kMany, channels - strip),
                               [&](auto &values, Index first) {
                    if (largest_) {
                        largest(src + first, at, values);
                    } else if (norm_) {
                        norm(src + first, at, values);
                    } else {
                        average(src + first, at, values);
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

    // Sets `values` to the sum of a term of each tap; returns the number of taps.
    template <class Values, class Term>
    Index add(const float *src, const Place &at, Values &values, const Term &term) const {
        Index inside = 0;
        values.setZero();
        const auto each = [&](const auto &afterwards) {
            for_each_tap(window_, at, [&](Index, Index pixel) {
                values += term(like(values, src + pixel * window_.channels));
                ++inside;
                afterwards();
            });
        };
        if (taps(window_) <= kDeep) {
            each([] {});
            return inside;
        }
        auto sums = values.template cast<double>().eval();
        each([&] {
            if (inside % kDeep != 0) return;
            sums += values.template cast<double>();
            values.setZero();
        });
        values = (sums + values.template cast<double>()).template cast<float>();
        return inside;
    }

    template <class Values>
    void average(const float *src, const Place &at, Values &values) const {
        const Index inside = add(src, at, values, [](const auto &one) { return one; });
        values /= static_cast<float>(with_pads_ ? counted(at) : inside);
    }

    // Uses the standard library's functions: Eigen's give NaN for infinity.
    template <class Values>
    void norm(const float *src, const Place &at, Values &values) const {
        if (power_ == 1) {
            add(src, at, values, [](const auto &one) { return one.abs(); });
        } else if (power_ == 2) {
            add(src, at, values, [](const auto &one) { return one.square(); });
            values = values.unaryExpr([](float x) { return std::sqrt(x); }).eval();
        } else {
            const auto raised = [this](float x) { return std::pow(std::abs(x), power_); };
            add(src, at, values, [&](const auto &one) { return one.unaryExpr(raised).eval(); });
            values = values.unaryExpr([&](float x) { return std::pow(x, 1 / power_); }).eval();
        }
    }

    // Returns the number of the window's elements inside the image and its counted pads.
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
    float power_;
    bool largest_, norm_, with_pads_;
    Index pixels_ = 0;
};

// Max pooling with indices: the first maximum of each window, in the order N C D H W of the image,
// or with D fastest and W slowest.
class LargestPlace final : public Step {
public:
    LargestPlace(const Window &window, bool column_major)
        : Step("pooling_place"), window_(window), column_major_(column_major) {
        check(window_);
        pixels_ = dst_pixels(window_);
        const Index all = times(pixels_, window.channels);
        add_slot("src", VTENSOR_READ, times(src_pixels(window_), window.channels));
        add_slot("dst", VTENSOR_WRITE, all);
        add_slot("indices", VTENSOR_WRITE, all, sizeof(Index));
    }

private:
    void run(void *const *slots) const override {
        const Index channels = window_.channels, image = product(window_.src);
        const float *src = input(slots, 0);
        auto *indices = static_cast<Index *>(slots[2]);
        parallel(pixels_, pixels_ * channels * taps(window_), [&](Index begin, Index end) {
            for (Index pixel = begin; pixel < end; ++pixel) {
                float *dst = output(slots, 1) + pixel * channels;
                Index *found = indices + pixel * channels;
                const Place at = place(window_, pixel);
                bool first = true;
                for_each_tap(window_, at, [&](Index, Index from) {
                    const Index number = numbered(from - at.image * image);
                    for (Index c = 0; c < channels; ++c) {
                        const float value = src[from * channels + c];
                        const bool better = first || value > dst[c] ||
                                            (std::isnan(value) && !std::isnan(dst[c]));
                        dst[c] = better ? value : dst[c];
                        found[c] = better ? (at.image * channels + c) * image + number : found[c];
                    }
                    first = false;
                });
            }
        });
    }

    // Returns the index of a position `within` the image, W fastest unless column-major.
    Index numbered(Index within) const {
        if (!column_major_) return within;
        const Index w = within % window_.src[2], rest = within / window_.src[2];
        const Index h = rest % window_.src[1], d = rest / window_.src[1];
        return d + window_.src[0] * (h + window_.src[1] * w);
    }

    Window window_;
    bool column_major_;
    Index pixels_ = 0;
};

}  // namespace

Step *pooling(const std::string &kind, const Window &window, const Ints &end, float power) {
    return new Pooling(kind, window, end, power);
}

Step *largest_place(const Window &window, bool column_major) {
    return new LargestPlace(window, column_major);
}

}  // namespace vtensor::eigen
