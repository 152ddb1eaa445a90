// native/onednn/maxima.h: the NaN and infinities that oneDNN's kernels with a maximum lose.
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

// Completes dst right after a softmax along `axis`, or its logarithm. oneDNN's kernels leave one
// NaN in a row whose src holds a NaN or +inf, and make the rest 0 or -inf: all of it becomes NaN. A
// row is read up to its first element that is neither 0 (-inf for the logarithm) nor NaN, which
// proves that the row is right; it is mostly the first one. Nothing is done for other types than
// f32, bf16 and f16.
void spread_nan(int axis, bool logarithm, const Desc &dst_desc, void *dst);

}  // namespace vtensor::onednn
