// native/eigen/signals.h: factories of kernels for signals, windows and matrices. Each function
// checks its numbers, throws std::invalid_argument, and returns a step that the caller owns.
#pragma once

#include <string>

#include "kernels.h"

namespace vtensor::eigen {

// Col2Im: windows of one channel, added up at their positions in the image, of which window.src has
// the sizes. The slot src has, for each element of the kernel, a row of all windows' elements.
// Types are those of elements.h.
Step *col2im(const std::string &dtype, const Window &window);

// The numbers of groups of channels, of groups of channels that share offsets (`parts`), of
// outputs, and of spatial dims (`rank`); whether there is a mask.
struct Bends {
    Index groups, parts, outputs, rank;
    bool masked;
};

// A deformable convolution of f32: src N C D H W, weights O I d h w, offset N parts d h w rank D H
// W, mask (if there is one) likewise without rank, dst N O D H W.
Step *deformed(const Window &window, const Bends &bends);

// Series of `size` numbers of one or two parts. A transform takes `taken` numbers of each frame,
// `step` apart, times a window if there is one, padded with zeros to `length`, and gives the first
// `bins` results. mirrored: the second half of a transform's input mirrors the numbers taken.
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
