// native/onednn/library.h: the loaded oneDNN itself: which one, and for which instruction sets.
#pragma once

#include <string>

namespace vtensor::onednn {

// The best instruction set that kernels may use: the processor's or the limit. Asking fixes it.
std::string isa();

// Caps the instruction set of this process. Throws std::invalid_argument for an unknown name, and
// std::runtime_error if oneDNN has fixed another one already.
void limit_isa(const std::string &name);

// "3.2.0".
std::string version();

// The file that the loaded library comes from.
std::string library_path();

}  // namespace vtensor::onednn
