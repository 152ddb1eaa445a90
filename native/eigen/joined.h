// native/eigen/joined.h: element-wise programs over what lies in pieces.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace vtensor::eigen {

// As pointwise, where the first operand lies as dst does, but comes from as many slots as there are
// pieces: of each row of it, each has so many elements.
Step *joined(const Ints &shape, const std::vector<Ints> &strides,
             const std::vector<std::string> &types, const std::vector<Constant> &constants,
             const std::vector<Instruction> &program, const std::vector<Box> &pads,
             const Ints &pieces);

}  // namespace vtensor::eigen
