// native/onednn/outrun.h: kernels that oneDNN names before faster ones.
#pragma once

#include "primitive.h"

namespace vtensor::onednn {

// True where the library is used without AVX-512: there it has such kernels.
bool names_slower_first();

// True where another kernel for the same layouts may be faster than this one, though oneDNN names
// it later.
bool may_be_outrun(const std::string &kernel);

// True where `later` is such a kernel.
bool outruns(const Primitive &later, const Primitive &first);

}  // namespace vtensor::onednn
