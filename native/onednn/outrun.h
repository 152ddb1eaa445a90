// native/onednn/outrun.h: kernels that oneDNN names before faster ones.
#pragma once

#include <string>

namespace vtensor::onednn {

// True where another kernel for the same layouts may be faster than this one, though oneDNN names
// it later.
bool may_be_outrun(const std::string &kernel);

// True where `later` is such a kernel.
bool outruns(const std::string &later, const std::string &kernel);

}  // namespace vtensor::onednn
