// native/eigen/convolution.cpp: convolution as a product of matrices.
//
// Windows become rows of a matrix in scratch memory, a tile of rows at a time, unless the image is
// that matrix already (a 1x1 kernel without strides).
#include <algorithm>
#include <string>
#include <type_traits>

#include "check.h"
#include "kernels.h"
#include "matrix.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// Elements of a tile: Eigen packs the kernels again for each tile, and a tile beyond the L2 cache
// is read from memory once more.
constexpr Index kTileElements = Index{1} << 20;
constexpr Index kFewestRows = 192;

// Element: float, or Bits for integers.
template <class Element>
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
        const Index full_tile = kTileElements / std::max(depth_, Index{1});
        rows_ = std::min(pixels_, std::max(kFewestRows, full_tile));
        if (!direct_) add_scratch(times(rows_, depth_));
    }

private:
    void run(void *const *slots) const override {
        for (Index group = 0; group < groups_; ++group) {
            const Element *src = static_cast<const Element *>(slots[0]) + group * inputs_;
            const Element *weights =
                static_cast<const Element *>(slots[1]) + group * depth_ * outputs_;
            const Index width = groups_ * outputs_;
            Element *dst = static_cast<Element *>(slots[2]) + group * outputs_;
            if (direct_) {
                multiply_rows(src, window_.channels, pixels_, weights, dst);
                continue;
            }
            auto *tile = static_cast<Element *>(slots[3]);
            for (Index first = 0; first < pixels_; first += rows_) {
                const Index count = std::min(rows_, pixels_ - first);
                gather(src, first, count, tile);
                multiply_rows(tile, depth_, count, weights, dst + first * width);
            }
        }
    }

    // Multiplies rows, `pitch` apart, by the weights of a group.
    void multiply_rows(const Element *rows, Index pitch, Index count, const Element *weights,
                       Element *dst) const {
        const Index width = groups_ * outputs_;
        if constexpr (std::is_same_v<Element, float>) {
            multiply({rows, count, depth_, Eigen::OuterStride<>(pitch)},
                     {weights, depth_, outputs_, Eigen::OuterStride<>(outputs_)},
                     {dst, count, outputs_, Eigen::OuterStride<>(width)});
        } else {
            multiply_bits({rows, pitch}, {weights, outputs_}, {dst, width}, count, outputs_,
                          depth_);
        }
    }

    // Copies the windows first .. first + count as rows of a matrix.
    void gather(const Element *src, Index first, Index count, Element *rows) const {
        parallel(count, count * depth_, [&](Index begin, Index end) {
            for (Index row = begin; row < end; ++row)
                gather_window(src, place(window_, first + row), rows + row * depth_);
        });
    }

    void gather_window(const Element *src, const Place &at, Element *to) const {
        const Index line = window_.kernel[2] * inputs_;
        const Index x = origin(window_, at, 2);
        const Range columns = within(window_, 2, x, window_.src[2]);
        for (Index d = 0; d < window_.kernel[0]; ++d) {
            const Index z = origin(window_, at, 0) + d * window_.dilations[0];
            for (Index h = 0; h < window_.kernel[1]; ++h, to += line) {
                const Index y = origin(window_, at, 1) + h * window_.dilations[1];
                if (z < 0 || z >= window_.src[0] || y < 0 || y >= window_.src[1]) {
                    std::fill_n(to, line, Element{0});
                } else {
                    const Index row = (at.image * window_.src[0] + z) * window_.src[1] + y;
                    gather_line(src, row * window_.src[2] + x, columns, to);
                }
            }
        }
    }

    // Copies a line of a window: in one piece except for pads, if its elements are neighbours.
    void gather_line(const Element *src, Index begin, const Range &inside, Element *to) const {
        const Index pitch = window_.channels, step = window_.dilations[2] * pitch;
        const Index before = inside.first * inputs_, after = inside.last * inputs_;
        std::fill_n(to, before, Element{0});
        if (step == inputs_) {
            std::copy_n(src + (begin * pitch + before), after - before, to + before);
        } else {
            for (Index w = inside.first; w < inside.last; ++w)
                std::copy_n(src + (begin * pitch + w * step), inputs_, to + w * inputs_);
        }
        std::fill_n(to + after, window_.kernel[2] * inputs_ - after, Element{0});
    }

    Window window_;
    Index groups_, outputs_, inputs_ = 0, depth_ = 0, pixels_ = 0, rows_ = 0;
    bool direct_ = false;
};

}  // namespace

Step *convolution(const std::string &type, const Window &window, Index groups, Index outputs) {
    if (type == "f32") return new Convolution<float>(window, groups, outputs);
    demand(type == "s32", "a convolution of f32 or s32");
    return new Convolution<Bits>(window, groups, outputs);
}

}  // namespace vtensor::eigen
