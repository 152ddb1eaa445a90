// native/onednn/desc.h: an immutable memory descriptor with everything that oneDNN reports of it.
#pragma once

#include <oneapi/dnnl/dnnl_types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "handles.h"

namespace vtensor::onednn {

class Desc {
public:
    enum class Kind { blocked, any, opaque };
    using Dims = std::vector<dnnl_dim_t>;

    // The constructors throw std::invalid_argument unless the rank is 1 to 12, every dim is at
    // least 0, and the memory fits 63 bits of bytes.
    static Desc any(const Dims &dims, const std::string &dtype);
    static Desc tagged(const Dims &dims, const std::string &dtype, const std::string &tag);
    static Desc strided(const Dims &dims, const std::string &dtype, const Dims &strides);

    // Copies a descriptor of a primitive.
    explicit Desc(const_dnnl_memory_desc_t md);

    const Dims &dims() const { return state_->dims; }
    int rank() const { return static_cast<int>(dims().size()); }
    dnnl_data_type_t type() const { return state_->type; }
    Kind kind() const { return state_->kind; }
    // The strides of the outer (unsplit) part of each dim, in elements; empty unless blocked.
    const Dims &strides() const { return state_->strides; }
    const Dims &padded_dims() const { return state_->padded_dims; }
    const Dims &padded_offsets() const { return state_->padded_offsets; }
    // The blocks as (size, dim), outermost first; empty unless blocked.
    const std::vector<std::pair<dnnl_dim_t, dnnl_dim_t>> &blocks() const { return state_->blocks; }
    // The offset of the first element, in elements.
    dnnl_dim_t offset() const { return state_->offset; }
    // From the buffer's address to the end of the last element, in bytes; 0 for any.
    std::size_t bytes() const { return state_->bytes; }
    bool empty() const;

    Desc reshape(const Dims &dims) const;
    // Returns the descriptor with dims renumbered as by numpy.transpose: dim i of the result is dim
    // permutation[i] of this.
    Desc permute(const Dims &permutation) const;
    Desc submemory(const Dims &dims, const Dims &offsets) const;

    const_dnnl_memory_desc_t get() const { return state_->md.get(); }
    // A key that identifies the descriptor: equal keys mean equal descriptors, and vice versa.
    const std::string &key() const { return state_->key; }
    bool operator==(const Desc &other) const { return key() == other.key(); }
    std::string text() const;

private:
    struct State {
        MdHandle md;
        Dims dims, strides, padded_dims, padded_offsets;
        std::vector<std::pair<dnnl_dim_t, dnnl_dim_t>> blocks;
        dnnl_data_type_t type = dnnl_data_type_undef;
        Kind kind = Kind::any;
        dnnl_dim_t offset = 0;
        std::size_t bytes = 0;
        std::string key;
    };
    explicit Desc(MdHandle md);
    static std::shared_ptr<State> read(MdHandle md);
    static void read_blocks(State &state);

    std::shared_ptr<const State> state_;
};

}  // namespace vtensor::onednn
