// native/eigen/joined.h: element-wise programs on a concatenation.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace vtensor::eigen {

// Returns a step like pointwise whose first operand, in dst's order, is concatenated from several
// slots: piece i has pieces[i] elements of each row.
Step *joined(const Ints &shape, const std::vector<Ints> &strides,
             const std::vector<std::string> &types, const std::vector<Constant> &constants,
             const std::vector<Instruction> &program, const std::vector<Box> &pads,
             const Ints &pieces);

}  // namespace vtensor::eigen
