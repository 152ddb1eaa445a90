// native/narrow/instructions.h: the kinds of instructions that products can use.
#pragma once

#include <string>
#include <vector>

namespace vtensor::narrow {

// Returns the kinds for which this module has kernels that the machine runs, the slowest first.
std::vector<std::string> instructions();

}  // namespace vtensor::narrow
