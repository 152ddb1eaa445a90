// native/onednn/library.h: the loaded oneDNN: its version, file and instruction set.
#pragma once

#include <string>

namespace vtensor::onednn {

// Returns the best instruction set that kernels may use: the processor's or the cap. The call fixes
// it for the process.
std::string isa();

// Caps the instruction set of this process. Throws std::invalid_argument for an unknown name, and
// std::runtime_error if oneDNN has fixed another one already.
void limit_isa(const std::string &name);

// Returns oneDNN's version: "3.2.0".
std::string version();

// Returns the path of the loaded library.
std::string library_path();

}  // namespace vtensor::onednn
