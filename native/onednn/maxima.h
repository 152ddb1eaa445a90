// native/onednn/maxima.h: the NaN and infinities that oneDNN's max pooling loses.
#pragma once

#include <vector>

#include "desc.h"
#include "operators.h"

namespace vtensor::onednn {

// Puts dst right after a max pooling without followers: oneDNN's kernels pass over a NaN, and begin
// with the lowest finite number. One look at src; windows with a NaN or -inf are pooled anew.
// Nothing is done for other types than f32, bf16 and f16, the same on both sides.
void restore_maxima(const Window &window, const Desc &src_desc, const Desc &dst_desc,
                    const void *src, void *dst);

}  // namespace vtensor::onednn
