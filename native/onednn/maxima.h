// native/onednn/maxima.h: repair of NaN and infinities that oneDNN's kernels with a maximum lose.
#pragma once

#include <vector>

#include "desc.h"
#include "operators.h"

namespace vtensor::onednn {

// Repairs dst after a max pooling without followers: oneDNN's kernels skip NaN and start with the
// lowest finite number. Searches src, and recomputes windows with a NaN or -inf. Does nothing
// unless both types are the same one of f32, bf16 and f16.
void restore_maxima(const Window &window, const Desc &src_desc, const Desc &dst_desc,
                    const void *src, void *dst);

// Repairs dst after a softmax along `axis`, or its logarithm. For a row of src with a NaN or +inf,
// oneDNN's kernels leave one NaN and make the rest 0 or -inf; the whole row becomes NaN. A row is
// read up to its first element that is neither 0 (-inf for the logarithm) nor NaN: such an element,
// mostly the first one, proves that the row is right. Does nothing for types other than f32, bf16
// and f16.
void spread_nan(int axis, bool logarithm, const Desc &dst_desc, void *dst);

}  // namespace vtensor::onednn
