// native/onednn/check.h: checks of arguments before oneDNN gets them, which trusts more than it
// checks. Every function throws std::invalid_argument whose text begins with `what`.
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

// Returns dims as text: "1x64x56x56".
std::string shown(const Ints &dims);

// Returns a product or a sum, or throws if it does not fit 64 bits.
dnnl_dim_t checked_product(dnnl_dim_t a, dnnl_dim_t b, const char *what);
dnnl_dim_t checked_sum(dnnl_dim_t a, dnnl_dim_t b, const char *what);

// Checks an operand of a primitive: kernels count in 32 bits, and opaque formats are allowed only
// if `opaque`.
void check_operand(const std::string &what, const char *role, const Desc &desc,
                   bool opaque = false);

// Checks an operand that is written: as check_operand, and no two elements may share memory.
void check_written(const std::string &what, const char *role, const Desc &desc,
                   bool opaque = false);

void check_rank(const std::string &what, const char *role, const Desc &desc, int least, int most);
void check_same_dims(const std::string &what, const char *left, const Desc &a, const char *right,
                     const Desc &b);

// Checks that `operand` broadcasts to `target`: equal ranks, each dim equal or 1.
void check_stretches(const std::string &what, const char *role, const Ints &operand,
                     const Ints &target);

// Checks that `axis` is below `rank`.
void check_axis(const std::string &what, int axis, int rank);

// Returns a number as the float that oneDNN takes: not NaN, which oneDNN reads as "given at run
// time", and finite if `finite`.
float checked_float(const std::string &what, const char *name, double value, bool finite = true);

// Checks that a result with elements has inputs with elements: oneDNN skips empty work altogether
// and would leave the result unwritten. Throws Unimplemented.
void check_not_from_nothing(const std::string &what, const std::vector<const Desc *> &inputs,
                            const Desc &dst);

}  // namespace vtensor::onednn
