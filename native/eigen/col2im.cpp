// native/eigen/col2im.cpp: Col2Im: the windows of an image added up, each at its position.
#include <algorithm>

#include "elements.h"
#include "parallel.h"
#include "signals.h"
#include "window.h"

namespace vtensor::eigen {

namespace {

// The slot dst is the image: `window.images` layers of the sizes `window.src`. The slot src has,
// for each layer and each element of the window's kernel, that element of all windows.
template <class Element>
class Col2Im final : public Step {
public:
    explicit Col2Im(const Window &window) : Step("col2im"), window_(window) {
        check(window_);
        demand(window.channels == 1, "an image has one channel here");
        places_ = product(window.dst);
        add_slot("src", VTENSOR_READ, product({window.images, taps(window), places_}),
                 sizeof(Element));
        add_slot("dst", VTENSOR_WRITE, src_pixels(window_), sizeof(Element));
    }

private:
    // The type of sums; integers wrap around.
    using Total = typename Wide<Element>::type;
    static constexpr Index kStrip = 512;

    void run(void *const *slots) const override {
        const auto *src = static_cast<const Element *>(slots[0]);
        auto *dst = static_cast<Element *>(slots[1]);
        const Index height = window_.src[0] * window_.src[1], width = window_.src[2];
        const Index work = window_.images * (places_ * taps(window_) + height * width);
        parallel(window_.images * height, work, [&](Index begin, Index end) {
            for (Index line = begin; line < end; ++line) {
                const auto *layer = src + line / height * taps(window_) * places_;
                const Index z = line % height / window_.src[1], y = line % window_.src[1];
                for (Index x = 0; x < width; x += kStrip)
                    sum(layer, z, y, x, std::min(kStrip, width - x), dst + line * width + x);
            }
        });
    }

    // Computes `count` elements of a line of the image, from x on.
    void sum(const Element *layer, Index z, Index y, Index x, Index count, Element *dst) const {
        Total totals[kStrip] = {};
        for (Index d = 0; d < window_.kernel[0]; ++d) {
            const Index slice = window_at(0, z, d);
            if (slice < 0) continue;
            for (Index h = 0; h < window_.kernel[1]; ++h) {
                const Index row = window_at(1, y, h);
                if (row < 0) continue;
                const Index tap = (d * window_.kernel[1] + h) * window_.kernel[2];
                const Index line = (slice * window_.dst[1] + row) * window_.dst[2];
                for (Index w = 0; w < window_.kernel[2]; ++w)
                    add(layer + (tap + w) * places_ + line, w * window_.dilations[2] - x, count,
                        totals);
            }
        }
        for (Index i = 0; i < count; ++i) dst[i] = static_cast<Element>(totals[i]);
    }

    // Returns the index, along a dim, of the window whose element `tap` is at `place` in the image;
    // -1 if there is none.
    Index window_at(std::size_t dim, Index place, Index tap) const {
        const Index from = place + window_.begin[dim] - tap * window_.dilations[dim];
        if (from < 0 || from % window_.strides[dim] != 0) return -1;
        const Index found = from / window_.strides[dim];
        return found < window_.dst[dim] ? found : -1;
    }

    // Adds one element of each window of a line to the totals. The first window's element belongs
    // to the total at `shift` minus the pad before the line.
    void add(const Element *line, Index shift, Index count, Total *totals) const {
        const Index first = shift - window_.begin[2], step = window_.strides[2];
        const Index windows = window_.dst[2];
        const auto before = [&](Index place) {  // number of windows before a place
            return std::clamp<Index>((place - first + step - 1) / step, 0, windows);
        };
        const Index stop = before(count);
        for (Index at = first < 0 ? before(0) : 0; at < stop; ++at)
            totals[first + at * step] += static_cast<Total>(line[at]);
    }

    Window window_;
    Index places_ = 0;
};

}  // namespace

Step *col2im(const std::string &dtype, const Window &window) {
    return with_type(dtype,
                     [&]<class T>(Type<T>) -> Step * { return new Col2Im<T>(window); });
}

}  // namespace vtensor::eigen
