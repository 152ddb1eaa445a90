// native/onednn/check.h: what is verified before anything crosses into oneDNN, which trusts more
// than it checks. Every function throws std::invalid_argument with `what` in front.
#pragma once

#include <oneapi/dnnl/dnnl_types.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "desc.h"

namespace vtensor::onednn {

using Ints = std::vector<dnnl_dim_t>;

template <typename... Parts>
[[noreturn]] void refuse(const Parts &...parts) {
    std::ostringstream text;
    (text << ... << parts);
    throw std::invalid_argument(text.str());
}

// "1x64x56x56".
std::string shown(const Ints &dims);

// A product or a sum that does not fit 64 bits is refused.
dnnl_dim_t checked_product(dnnl_dim_t a, dnnl_dim_t b, const char *what);
dnnl_dim_t checked_sum(dnnl_dim_t a, dnnl_dim_t b, const char *what);

// An operand of a primitive: its kernels count in 32 bits; opaque forms go where `opaque` says.
void check_operand(const std::string &what, const char *role, const Desc &desc,
                   bool opaque = false);

// As check_operand; besides, no two elements may share memory.
void check_written(const std::string &what, const char *role, const Desc &desc,
                   bool opaque = false);

void check_rank(const std::string &what, const char *role, const Desc &desc, int least, int most);
void check_same_dims(const std::string &what, const char *left, const Desc &a, const char *right,
                     const Desc &b);

// `operand` may be stretched to `target`: the same rank, each dim equal or 1.
void check_stretches(const std::string &what, const char *role, const Ints &operand,
                     const Ints &target);

// `dim` is an index of a rank-`rank` tensor.
void check_axis(const std::string &what, int axis, int rank);

// A number that oneDNN takes as a float: not NaN (which oneDNN reads as "told at run time"), and
// finite where `finite`.
float checked_float(const std::string &what, const char *name, double value, bool finite = true);

// A result that has elements needs inputs that have some; oneDNN skips empty work altogether and
// would leave the result unwritten. Throws Unimplemented.
void check_not_from_nothing(const std::string &what, const std::vector<const Desc *> &inputs,
                            const Desc &dst);

}  // namespace vtensor::onednn
