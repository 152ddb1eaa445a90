// native/onednn/names.h: oneDNN's enumerators by the names that the library prints.
#pragma once

#include <oneapi/dnnl/dnnl_types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace vtensor::onednn {

// Returns an element type by name: "f32", "bf16", "f16", "s32", "s8", "u8". Throws
// std::invalid_argument.
dnnl_data_type_t data_type(const std::string &name);
std::string name_of(dnnl_data_type_t type);
std::size_t item_bytes(dnnl_data_type_t type);

// A format tag, and what its name means: `rank` dims, dim d in blocks of block[d] elements (1: not
// blocked).
struct Tag {
    std::string name;
    dnnl_format_tag_t value;
    int rank;
    std::vector<dnnl_dim_t> block;
};

// Returns every tag of the enum in its canonical spelling (abcd, aBcd16b, ...), in the enum's
// order.
const std::vector<Tag> &tags();

// Returns the tag of a name. Throws std::invalid_argument if there is none.
const Tag &tag(const std::string &name);

// Algorithms by their names without the family's prefix: "relu", "add", "norm_lp_sum".
using Algorithms = std::vector<std::pair<std::string, dnnl_alg_kind_t>>;
const Algorithms &eltwise_algorithms();
const Algorithms &binary_algorithms();
const Algorithms &reduction_algorithms();
const Algorithms &pooling_algorithms();
const Algorithms &lrn_algorithms();
const Algorithms &resampling_algorithms();

// Returns an algorithm by name. Throws std::invalid_argument with the list of names; `what` begins
// its text.
dnnl_alg_kind_t algorithm(const Algorithms &table, const std::string &name,
                          const std::string &what);

// Returns an arithmetic mode by name: "strict", "bf16", "f16", "tf32", "any". Throws
// std::invalid_argument.
dnnl_fpmath_mode_t fpmath_mode(const std::string &name);

}  // namespace vtensor::onednn
