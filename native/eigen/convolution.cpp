// native/eigen/convolution.cpp: convolution as a product of matrices.
//
// Windows become rows of a matrix in scratch memory, a tile of rows at a time, unless the image is
// that matrix already (a 1x1 kernel that skips nothing).
#include <algorithm>

#include "check.h"
#include "kernels.h"
#include "matrix.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// Rows are gathered until the tile has about this many elements: Eigen packs the kernels again for
// each tile, and a tile beyond the second-level cache is read from memory once more.
constexpr Index kTileElements = Index{1} << 20;
constexpr Index kFewestRows = 192;

class Convolution final : public Step {
public:
    Convolution(const Window &window, Index groups, Index outputs)
        : Step("gemm_convolution"), window_(window), groups_(groups), outputs_(outputs) {
        check(window_);
        demand(groups > 0 && outputs >= 0 && window.channels % groups == 0,
               "the channels do not fall into the groups");
        inputs_ = window.channels / groups;
        depth_ = times(taps(window_), inputs_);
        pixels_ = dst_pixels(window_);
        add_slot("src", VTENSOR_READ, times(src_pixels(window_), window.channels));
        add_slot("weights", VTENSOR_READ, times(times(groups, depth_), outputs));
        add_slot("dst", VTENSOR_WRITE, times(pixels_, times(groups, outputs)));
        direct_ = window.src == window.dst && depth_ == inputs_ && window.begin == Ints{0, 0, 0} &&
                  window.strides == Ints{1, 1, 1};
        rows_ = std::min(pixels_, std::max(kFewestRows, kTileElements / std::max(depth_, Index{1})));
        if (!direct_) add_scratch(times(rows_, depth_));
    }

private:
    void run(void *const *slots) const override {
        for (Index group = 0; group < groups_; ++group) {
            const float *src = input(slots, 0) + group * inputs_;
            const ConstMatrix weights(input(slots, 1) + group * depth_ * outputs_, depth_, outputs_,
                                      Eigen::OuterStride<>(outputs_));
            const Index width = groups_ * outputs_;
            float *dst = output(slots, 2) + group * outputs_;
            if (direct_) {
                multiply({src, pixels_, depth_, Eigen::OuterStride<>(window_.channels)}, weights,
                         {dst, pixels_, outputs_, Eigen::OuterStride<>(width)});
                continue;
            }
            float *tile = output(slots, 3);
            for (Index first = 0; first < pixels_; first += rows_) {
                const Index count = std::min(rows_, pixels_ - first);
                gather(src, first, count, tile);
                multiply({tile, count, depth_, Eigen::OuterStride<>(depth_)}, weights,
                         {dst + first * width, count, outputs_, Eigen::OuterStride<>(width)});
            }
        }
    }

    // The windows first .. first + count as rows of a matrix.
    void gather(const float *src, Index first, Index count, float *rows) const {
        parallel(count, count * depth_, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row) {
                float *to = rows + row * depth_;
                for_each_line(window_, place(window_, first + row),
                              [&](Index tap, Index line, Index x) {
                                  gather_line(src, line, x, to + tap * inputs_);
                              });
            }
        });
    }

    // A line of a window: in one piece, but for what lies outside, if its elements are neighbours.
    void gather_line(const float *src, Index line, Index x, float *to) const {
        const Index width = window_.kernel[2], pitch = window_.channels;
        if (line < 0) {
            std::fill_n(to, width * inputs_, 0.0F);
        } else if (window_.dilations[2] == 1 && inputs_ == pitch) {
            const Index first = std::clamp<Index>(-x, 0, width);
            const Index last = std::clamp<Index>(window_.src[2] - x, first, width);
            std::fill_n(to, first * pitch, 0.0F);
            std::copy_n(src + (line + x + first) * pitch, (last - first) * pitch, to + first * pitch);
            std::fill_n(to + last * pitch, (width - last) * pitch, 0.0F);
        } else {
            for (Index w = 0; w < width; ++w, x += window_.dilations[2], to += inputs_) {
                if (x < 0 || x >= window_.src[2]) {
                    std::fill_n(to, inputs_, 0.0F);
                } else {
                    std::copy_n(src + (line + x) * pitch, inputs_, to);
                }
            }
        }
    }

    Window window_;
    Index groups_, outputs_, inputs_ = 0, depth_ = 0, pixels_ = 0, rows_ = 0;
    bool direct_ = false;
};

}  // namespace

Step *convolution(const Window &window, Index groups, Index outputs) {
    return new Convolution(window, groups, outputs);
}

}  // namespace vtensor::eigen
