// native/onednn/outrun.h: kernels that oneDNN offers before faster ones.
#pragma once

#include "primitive.h"

namespace vtensor::onednn {

// Returns whether oneDNN offers slower kernels first, as it does without AVX-512.
bool names_slower_first();

// Returns whether a kernel that oneDNN offers later for the same layouts may be faster than this
// one.
bool may_be_outrun(const std::string &kernel);

// Returns whether `later`, which oneDNN offers after `first` for the same layouts, is faster.
bool outruns(const Primitive &later, const Primitive &first);

}  // namespace vtensor::onednn
