// native/eigen/bilinear.h: an image at another size, linearly along two axes at once.
#pragma once

#include <string>
#include <vector>

#include "step.h"

namespace vtensor::eigen {

// One of the two axes. Each element of dst lies between two of src, or on one of them.
struct Between {
    Index from;                    // src's size
    Ints below, above;             // for each element of dst, these two
    std::vector<float> low, high;  // and their weights
};

// Adds four elements of src, times their weights along both axes, for each element of dst. src has
// the sizes outer, rows.from, columns.from, inner; f32, f16 or bf16.
Step *bilinear(const std::string &dtype, Index outer, const Between &rows, const Between &columns,
               Index inner);

}  // namespace vtensor::eigen
