// native/winograd/phases.h: the phases of an image, for filters with a stride above 1.
#pragma once

#include <algorithm>
#include <cstring>

#include "image.h"

namespace vtensor::winograd {

// Windows of kStep * kStep pixels: `height` rows of `width` windows, from a row and a column of the
// image on. Pixels outside of the image are 0.
template <int kStep>
struct Phases {
    const Image &image;
    Index row, column, height, width;

    // Copies one channel: the pixels of a window are contiguous, windows are a vector apart, and
    // rows of windows `step` floats.
    void gather(const float *from, float *to, Index step) const {
        const Index begin = std::clamp<Index>((kStep - 1 - column) / kStep, 0, width);
        const Index end = std::clamp<Index>((image.width - column) / kStep, begin, width);
        for (Index i = 0; i < height * kStep; ++i) {
            const Index line = row + i;
            float *put = to + i / kStep * step + i % kStep * kStep;
            if (line < 0 || line >= image.height) {
                for (Index j = 0; j < width; ++j) std::fill_n(put + j * kLanes, kStep, 0.0f);
                continue;
            }
            const float *pixels = from + line * image.row + column * image.column;
            gather_edge(pixels, put, 0, begin);
            if (image.column == 1) {
                for (Index j = begin; j < end; ++j)
                    std::memcpy(put + j * kLanes, pixels + j * kStep, kStep * sizeof(float));
            } else {
                for (Index j = begin; j < end; ++j) {
                    for (Index q = 0; q < kStep; ++q)
                        put[j * kLanes + q] = pixels[(j * kStep + q) * image.column];
                }
            }
            gather_edge(pixels, put, end, width);
        }
    }

private:
    void gather_edge(const float *pixels, float *put, Index begin, Index end) const {
        for (Index j = begin; j < end; ++j) {
            for (Index q = 0; q < kStep; ++q) {
                const Index at = j * kStep + q;
                const bool inside = column + at >= 0 && column + at < image.width;
                put[j * kLanes + q] = inside ? pixels[at * image.column] : 0;
            }
        }
    }
};

}  // namespace vtensor::winograd
