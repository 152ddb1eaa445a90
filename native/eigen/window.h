// native/eigen/window.h: geometry of the windows over an image.
#pragma once

#include <algorithm>

#include "check.h"
#include "kernels.h"

namespace vtensor::eigen {

constexpr std::size_t kSpatial = 3;

// Checks that no position overflows; `end` is the pads at the end, if they matter.
inline void check(const Window &window, const Ints &end = {0, 0, 0}) {
    for (const Ints *row : {&window.src, &window.dst, &window.kernel, &window.strides,
                            &window.dilations, &window.begin, &end})
        demand(row->size() == kSpatial, "a window has three spatial dims");
    demand(product(window.src) >= 0 && product(window.dst) >= 0 && window.images >= 0 &&
               window.channels >= 0,
           "a size is negative");
    for (std::size_t i = 0; i < kSpatial; ++i) {
        demand(window.kernel[i] > 0 && window.strides[i] > 0 && window.dilations[i] > 0 &&
                   window.begin[i] >= 0 && end[i] >= 0,
               "a window of no extent, or a negative pad");
        const Index moved = times(window.dst[i], window.strides[i]);
        const Index spanned = times(window.kernel[i], window.dilations[i]);
        plus(plus(moved, spanned), plus(plus(window.begin[i], window.src[i]), end[i]));
    }
}

// A position of the window's output; `pixel` counts images, then spatial dims.
struct Place {
    Index image, at[kSpatial];
};

inline Place place(const Window &window, Index pixel) {
    Place found{};
    for (std::size_t i = kSpatial; i-- > 0; pixel /= window.dst[i])
        found.at[i] = pixel % window.dst[i];
    found.image = pixel;
    return found;
}

// Returns the position of the window's first element along a dim, in the image.
inline Index origin(const Window &window, const Place &at, std::size_t dim) {
    return at.at[dim] * window.strides[dim] - window.begin[dim];
}

// The elements of a window along a dim that are inside of 0 .. size: `first` to `last` - 1.
struct Range {
    Index first, last;
};

inline Range within(const Window &window, std::size_t dim, Index origin, Index size) {
    const Index step = window.dilations[dim], all = window.kernel[dim];
    // The number of elements before a position; the division is slow, and most windows are dense.
    const auto before = [&](Index place) {
        const Index far = place - origin;
        return std::clamp<Index>(step == 1 ? far : (far + step - 1) / step, 0, all);
    };
    return {before(0), before(size)};
}

// Calls body(tap, pixel of src) for each element of the window inside the image. Taps count the
// kernel's elements in order.
template <class Body>
void for_each_tap(const Window &window, const Place &at, const Body &body) {
    Index begin[kSpatial];
    Range range[kSpatial];
    for (std::size_t i = 0; i < kSpatial; ++i) {
        begin[i] = origin(window, at, i);
        range[i] = within(window, i, begin[i], window.src[i]);
    }
    for (Index d = range[0].first; d < range[0].last; ++d) {
        const Index z = at.image * window.src[0] + begin[0] + d * window.dilations[0];
        for (Index h = range[1].first; h < range[1].last; ++h) {
            const Index y = z * window.src[1] + begin[1] + h * window.dilations[1];
            const Index tap = (d * window.kernel[1] + h) * window.kernel[2];
            for (Index w = range[2].first; w < range[2].last; ++w)
                body(tap + w, y * window.src[2] + begin[2] + w * window.dilations[2]);
        }
    }
}

// Return the numbers of pixels of src and of dst, over all images.
inline Index src_pixels(const Window &window) { return times(window.images, product(window.src)); }
inline Index dst_pixels(const Window &window) { return times(window.images, product(window.dst)); }
inline Index taps(const Window &window) { return product(window.kernel); }

}  // namespace vtensor::eigen
