// native/onednn/desc.cpp: an immutable memory descriptor with everything that oneDNN reports of it.
#include "desc.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <sstream>
#include <type_traits>

#include "check.h"
#include "names.h"
#include "vtensor/forks.h"

namespace vtensor::onednn {

namespace {

using Dims = Desc::Dims;

template <typename T>
T query(const_dnnl_memory_desc_t md, dnnl_query_t what) {
    T value{};
    check(dnnl_memory_desc_query(md, what, &value), "reading a memory descriptor");
    return value;
}

Dims query_dims(const_dnnl_memory_desc_t md, dnnl_query_t what, int count) {
    const dnnl_dims_t *values = nullptr;
    check(dnnl_memory_desc_query(md, what, &values), "reading a memory descriptor");
    return Dims(*values, *values + count);
}

template <typename T>
void append(std::string &key, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    key.append(reinterpret_cast<const char *>(&value), sizeof value);
}

void append(std::string &key, const Dims &values) {
    for (const dnnl_dim_t value : values) append(key, value);
}

// Returns a number that identifies an opaque format, whose details cannot be queried. There are
// few: some for each convolution that has one.
std::size_t opaque_number(const_dnnl_memory_desc_t md) {
    const Unforked whole;
    static std::mutex guard;
    static std::vector<MdHandle> &known = *new std::vector<MdHandle>();
    const std::scoped_lock lock(guard);
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (dnnl_memory_desc_equal(known[i].get(), md) != 0) return i;
    }
    dnnl_memory_desc_t copy = nullptr;
    check(dnnl_memory_desc_clone(&copy, md), "copying a memory descriptor");
    known.emplace_back(copy);
    return known.size() - 1;
}

// Returns the bytes of a dense tensor of these dims; throws if they do not fit.
dnnl_dim_t checked_bytes(const Dims &dims, dnnl_data_type_t type) {
    auto bytes = static_cast<dnnl_dim_t>(item_bytes(type));
    for (const dnnl_dim_t dim : dims)
        bytes = checked_product(bytes, std::max<dnnl_dim_t>(dim, 1), "the size in bytes");
    return bytes;
}

dnnl_data_type_t check_dims(const Dims &dims, const std::string &dtype) {
    const dnnl_data_type_t type = data_type(dtype);
    if (dims.empty() || dims.size() > DNNL_MAX_NDIMS)
        refuse("a descriptor has 1 to ", DNNL_MAX_NDIMS, " dims, not ", dims.size());
    for (const dnnl_dim_t dim : dims) {
        if (dim < 0) refuse("dims ", shown(dims), ": a dim is negative");
    }
    checked_bytes(dims, type);
    return type;
}

void check_padded(const Tag &tag, const Dims &dims, dnnl_data_type_t type) {
    Dims padded = dims;
    for (std::size_t d = 0; d < dims.size(); ++d)
        padded[d] = checked_sum(dims[d], tag.block[d], "a padded dim");
    checked_bytes(padded, type);
}

void check_strides(const Dims &dims, const Dims &strides, dnnl_data_type_t type) {
    if (strides.size() != dims.size())
        refuse("dims ", shown(dims), " have ", strides.size(), " strides");
    dnnl_dim_t reach = 1;
    for (std::size_t d = 0; d < dims.size(); ++d) {
        if (strides[d] < 0) refuse("strides ", shown(strides), ": a stride is negative");
        const dnnl_dim_t extent =
            checked_product(std::max<dnnl_dim_t>(dims[d], 1), strides[d], "the reach in bytes");
        reach = checked_sum(reach, extent, "the reach in bytes");
    }
    checked_product(reach, static_cast<dnnl_dim_t>(item_bytes(type)), "the reach in bytes");
}

// Returns the elements that oneDNN reserves for a format without extra data, by its own rule.
dnnl_dim_t plain_elements(const Dims &padded, const Dims &strides, const Dims &split,
                          dnnl_dim_t block_elements) {
    dnnl_dim_t most = 0;
    for (std::size_t d = 0; d < padded.size(); ++d) {
        const dnnl_dim_t outer = padded[d] / split[d];
        most = std::max(most, outer == 1 ? outer : outer * strides[d]);
    }
    return std::max(most, block_elements);
}

bool is_permutation(const Dims &permutation) {
    Dims sorted = permutation;
    std::ranges::sort(sorted);
    Dims expected(sorted.size());
    std::iota(expected.begin(), expected.end(), 0);
    return sorted == expected;
}

}  // namespace

Desc Desc::any(const Dims &dims, const std::string &dtype) {
    const dnnl_data_type_t type = check_dims(dims, dtype);
    dnnl_memory_desc_t md = nullptr;
    check(dnnl_memory_desc_create_with_tag(&md, static_cast<int>(dims.size()), dims.data(), type,
                                           dnnl_format_tag_any),
          "Desc.any");
    return Desc(MdHandle(md));
}

Desc Desc::tagged(const Dims &dims, const std::string &dtype, const std::string &name) {
    const dnnl_data_type_t type = check_dims(dims, dtype);
    const Tag &form = tag(name);
    if (form.rank != static_cast<int>(dims.size()))
        refuse("tag ", name, " has ", form.rank, " dims, ", shown(dims), " has ", dims.size());
    check_padded(form, dims, type);
    dnnl_memory_desc_t md = nullptr;
    check(dnnl_memory_desc_create_with_tag(&md, form.rank, dims.data(), type, form.value),
          "Desc.tag " + name);
    return Desc(MdHandle(md));
}

Desc Desc::strided(const Dims &dims, const std::string &dtype, const Dims &strides) {
    const dnnl_data_type_t type = check_dims(dims, dtype);
    check_strides(dims, strides, type);
    dnnl_memory_desc_t md = nullptr;
    check(dnnl_memory_desc_create_with_strides(&md, static_cast<int>(dims.size()), dims.data(),
                                               type, strides.data()),
          "Desc.strided " + shown(dims) + " with strides " + shown(strides));
    return Desc(MdHandle(md));
}

Desc::Desc(const_dnnl_memory_desc_t md) {
    dnnl_memory_desc_t copy = nullptr;
    check(dnnl_memory_desc_clone(&copy, md), "copying a memory descriptor");
    state_ = read(MdHandle(copy));
}

Desc::Desc(MdHandle md) : state_(read(std::move(md))) {}

std::shared_ptr<Desc::State> Desc::read(MdHandle md) {
    auto state = std::make_shared<State>();
    state->md = std::move(md);
    const_dnnl_memory_desc_t raw = state->md.get();
    const int rank = query<int>(raw, dnnl_query_ndims_s32);
    state->dims = query_dims(raw, dnnl_query_dims, rank);
    state->type = query<dnnl_data_type_t>(raw, dnnl_query_data_type);
    state->padded_dims = query_dims(raw, dnnl_query_padded_dims, rank);
    state->padded_offsets = query_dims(raw, dnnl_query_padded_offsets, rank);
    state->offset = query<dnnl_dim_t>(raw, dnnl_query_submemory_offset_s64);
    const auto format = query<dnnl_format_kind_t>(raw, dnnl_query_format_kind);
    if (format == dnnl_format_kind_any) {
        state->kind = Kind::any;
        state->padded_dims = state->dims;
    } else if (format == dnnl_blocked) {
        state->kind = Kind::blocked;
        read_blocks(*state);
    } else {
        state->kind = Kind::opaque;
        state->bytes = dnnl_memory_desc_get_size(raw);
    }
    std::string &key = state->key;
    append(key, rank);
    append(key, state->type);
    append(key, state->kind);
    append(key, state->dims);
    if (state->kind == Kind::opaque) {
        append(key, opaque_number(raw));
    } else if (state->kind == Kind::blocked) {
        append(key, state->strides);
        append(key, state->padded_dims);
        append(key, state->padded_offsets);
        append(key, state->offset);
        for (const auto &[block, dim] : state->blocks) append(key, Dims{block, dim});
    }
    return state;
}

void Desc::read_blocks(State &state) {
    const_dnnl_memory_desc_t raw = state.md.get();
    const int rank = static_cast<int>(state.dims.size());
    state.strides = query_dims(raw, dnnl_query_strides, rank);
    const int count = query<int>(raw, dnnl_query_inner_nblks_s32);
    const Dims sizes = query_dims(raw, dnnl_query_inner_blks, count);
    const Dims dims = query_dims(raw, dnnl_query_inner_idxs, count);
    Dims split(state.dims.size(), 1);
    dnnl_dim_t block_elements = 1;
    for (std::size_t b = 0; b < sizes.size(); ++b) {
        state.blocks.emplace_back(sizes[b], dims[b]);
        split[static_cast<std::size_t>(dims[b])] *= sizes[b];
        block_elements *= sizes[b];
    }
    const std::size_t reserved = dnnl_memory_desc_get_size(raw);
    if (std::ranges::find(state.padded_dims, 0) != state.padded_dims.end()) return;
    const std::size_t item = item_bytes(state.type);
    const auto plain = static_cast<std::size_t>(
        plain_elements(state.padded_dims, state.strides, split, block_elements));
    const auto offset = static_cast<std::size_t>(state.offset);
    if (reserved > (plain + offset) * item) {
        // Sums for integer arithmetic follow the elements: the memory holds more than elements.
        state.kind = Kind::opaque;
        state.bytes = reserved;
        state.strides.clear();
        state.blocks.clear();
        return;
    }
    dnnl_dim_t last = state.offset + block_elements;
    for (std::size_t d = 0; d < split.size(); ++d)
        last += (state.padded_dims[d] / split[d] - 1) * state.strides[d];
    state.bytes = static_cast<std::size_t>(last) * item;
}

bool Desc::empty() const { return std::ranges::find(dims(), 0) != dims().end(); }

Desc Desc::reshape(const Dims &dims) const {
    check_dims(dims, name_of(type()));
    const auto count = [](const Dims &sizes) {
        return std::accumulate(sizes.begin(), sizes.end(), dnnl_dim_t{1}, std::multiplies<>());
    };
    if (count(dims) != count(this->dims()))
        refuse("reshape: ", shown(this->dims()), " and ", shown(dims),
               " have different numbers of elements");
    if (kind() == Kind::any) return any(dims, name_of(type()));
    dnnl_memory_desc_t md = nullptr;
    if (empty()) {  // any format holds no elements; oneDNN would divide by zero
        check(dnnl_memory_desc_create_with_strides(&md, static_cast<int>(dims.size()), dims.data(),
                                                   type(), nullptr),
              "reshape");
    } else {
        check(dnnl_memory_desc_reshape(&md, get(), static_cast<int>(dims.size()), dims.data()),
              "reshape of " + text() + " to " + shown(dims));
    }
    return Desc(MdHandle(md));
}

Desc Desc::permute(const Dims &permutation) const {
    if (permutation.size() != dims().size() || !is_permutation(permutation))
        refuse("permute: ", shown(permutation), " does not permute ", rank(), " dims");
    std::vector<int> destination(permutation.size());  // oneDNN wants where each dim goes
    Dims permuted;
    for (std::size_t i = 0; i < permutation.size(); ++i) {
        const auto source = static_cast<std::size_t>(permutation[i]);
        destination[source] = static_cast<int>(i);
        permuted.push_back(dims()[source]);
    }
    if (kind() == Kind::any) return any(permuted, name_of(type()));
    dnnl_memory_desc_t md = nullptr;
    check(dnnl_memory_desc_permute_axes(&md, get(), destination.data()), "permute of " + text());
    return Desc(MdHandle(md));
}

Desc Desc::submemory(const Dims &dims, const Dims &offsets) const {
    check_dims(dims, name_of(type()));
    if (dims.size() != this->dims().size() || offsets.size() != dims.size())
        refuse("submemory: ", rank(), " dims and offsets are needed, not ", dims.size(), " and ",
               offsets.size());
    for (std::size_t d = 0; d < dims.size(); ++d) {
        const dnnl_dim_t whole = this->dims()[d];
        if (offsets[d] < 0 || dims[d] > whole || offsets[d] > whole - dims[d])
            refuse("submemory: ", shown(dims), " at ", shown(offsets), " is not inside ",
                   shown(this->dims()));
    }
    if (kind() != Kind::blocked) refuse("submemory: ", text(), " has no parts");
    dnnl_memory_desc_t md = nullptr;
    check(dnnl_memory_desc_create_submemory(&md, get(), dims.data(), offsets.data()),
          "submemory " + shown(dims) + " at " + shown(offsets) + " of " + text());
    return Desc(MdHandle(md));
}

std::string Desc::text() const {
    std::ostringstream out;
    out << "Desc(" << name_of(type()) << ' ' << shown(dims());
    if (kind() == Kind::any) out << " any";
    if (kind() == Kind::opaque) out << " opaque";
    if (kind() == Kind::blocked) {
        out << " strides=" << shown(strides());
        for (const auto &[block, dim] : blocks()) out << ' ' << block << " of dim " << dim;
        if (offset() != 0) out << " offset=" << offset();
    }
    out << ')';
    return out.str();
}

}  // namespace vtensor::onednn
