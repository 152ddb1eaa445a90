// native/eigen/window.h: where the windows over an image lie.
#pragma once

#include <algorithm>

#include "check.h"
#include "kernels.h"

namespace vtensor::eigen {

constexpr std::size_t kSpatial = 3;

inline void check(const Window &window) {
    for (const Ints *row : {&window.src, &window.dst, &window.kernel, &window.strides,
                            &window.dilations, &window.begin})
        demand(row->size() == kSpatial, "a window has three spatial dims");
    demand(std::min({product(window.src), product(window.dst), window.images, window.channels}) >= 0,
           "a size is negative");
    for (std::size_t i = 0; i < kSpatial; ++i)
        demand(window.kernel[i] > 0 && window.strides[i] > 0 && window.dilations[i] > 0 &&
                   window.begin[i] >= 0,
               "a window of no extent, or a negative pad");
}

// A place of the window's output; `pixel` counts images, then spatial dims.
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

// Calls body(tap, row, x) for each line of the window along the last dim: its first tap, where its
// row of the image begins in src (-1: it is outside), and where in the row its first tap lies. Taps
// count the kernel's elements in order.
template <class Body>
void for_each_line(const Window &window, const Place &at, const Body &body) {
    Index origin[kSpatial];
    for (std::size_t i = 0; i < kSpatial; ++i)
        origin[i] = at.at[i] * window.strides[i] - window.begin[i];
    Index tap = 0;
    for (Index d = 0; d < window.kernel[0]; ++d) {
        const Index z = origin[0] + d * window.dilations[0];
        for (Index h = 0; h < window.kernel[1]; ++h, tap += window.kernel[2]) {
            const Index y = origin[1] + h * window.dilations[1];
            const bool inside = z >= 0 && z < window.src[0] && y >= 0 && y < window.src[1];
            const Index row =
                ((at.image * window.src[0] + z) * window.src[1] + y) * window.src[2];
            body(tap, inside ? row : Index{-1}, origin[2]);
        }
    }
}

// Calls body(tap, pixel of src) for each element of the window that lies inside the image.
template <class Body>
void for_each_tap(const Window &window, const Place &at, const Body &body) {
    for_each_line(window, at, [&](Index tap, Index row, Index x) {
        if (row < 0) return;
        for (Index w = 0; w < window.kernel[2]; ++w, x += window.dilations[2])
            if (x >= 0 && x < window.src[2]) body(tap + w, row + x);
    });
}

// Pixels of the image and of the output, over all images.
inline Index src_pixels(const Window &window) { return times(window.images, product(window.src)); }
inline Index dst_pixels(const Window &window) { return times(window.images, product(window.dst)); }
inline Index taps(const Window &window) { return product(window.kernel); }

}  // namespace vtensor::eigen
