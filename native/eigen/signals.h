// native/eigen/signals.h: the kernels of signals, windows and matrices; each function checks its
// numbers and throws std::invalid_argument. The caller owns the result.
#pragma once

#include <string>

#include "kernels.h"

namespace vtensor::eigen {

// Windows of one channel, added up each at its place in src of the window; the argument src holds a
// row of windows for each element of a kernel. Types are those of elements.h.
Step *col2im(const std::string &dtype, const Window &window);

// Groups of the channels, and parts of them that have offsets of their own; `rank` spatial dims.
struct Bends {
    Index groups, parts, outputs, rank;
    bool masked;
};

// A convolution of f32 whose elements are sampled beside their places: src N C D H W, weights
// O I d h w, offset N parts d h w rank D H W, mask (if there is one) without rank, dst N O D H W.
Step *deformed(const Window &window, const Bends &bends);

// Rows of `size` numbers of one part or two, of which transforms take `taken` of each frame, `step`
// apart, times a window if there is one, zeros behind them, and give the first `bins`. Mirrored: the
// second half of the numbers is the mirror image of those that are taken.
struct Frames {
    Index series, size, src_parts;
    Index frames, step, taken;
    Index length, bins, dst_parts;
    bool inverse, mirrored, windowed;
};

// Discrete Fourier transforms; f64, f32, f16 or bf16.
Step *fourier(const std::string &dtype, const Frames &frames);

// Determinants of square matrices; f64, f32, f16 or bf16.
Step *determinant(const std::string &dtype, Index matrices, Index rows);

}  // namespace vtensor::eigen
