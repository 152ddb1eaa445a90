// native/onednn/names.h: oneDNN's enumerators by the names that the library itself prints.
#pragma once

#include <oneapi/dnnl/dnnl_types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace vtensor::onednn {

// Element types: "f32", "bf16", "f16", "s32", "s8", "u8". Throws std::invalid_argument.
dnnl_data_type_t data_type(const std::string &name);
std::string name_of(dnnl_data_type_t type);
std::size_t item_bytes(dnnl_data_type_t type);

// A format tag, and what its name says: `rank` dims, dim d split into blocks of block[d] in all
// (1: not split).
struct Tag {
    std::string name;
    dnnl_format_tag_t value;
    int rank;
    std::vector<dnnl_dim_t> block;
};

// Every tag of the enum in its canonical spelling (abcd, aBcd16b, ...), in the enum's order.
const std::vector<Tag> &tags();

// Throws std::invalid_argument.
const Tag &tag(const std::string &name);

// Algorithms by the part of their name after the family's: "relu", "add", "norm_lp_sum".
using Algorithms = std::vector<std::pair<std::string, dnnl_alg_kind_t>>;
const Algorithms &eltwise_algorithms();
const Algorithms &binary_algorithms();
const Algorithms &reduction_algorithms();
const Algorithms &pooling_algorithms();
const Algorithms &lrn_algorithms();
const Algorithms &resampling_algorithms();

// Throws std::invalid_argument, listing the names there are; `what` says what the name is for.
dnnl_alg_kind_t algorithm(const Algorithms &table, const std::string &name,
                          const std::string &what);

// fpmath modes: "strict", "bf16", "f16", "tf32", "any". Throws std::invalid_argument.
dnnl_fpmath_mode_t fpmath_mode(const std::string &name);

}  // namespace vtensor::onednn
