// native/onednn/sound.cpp: kernels of oneDNN that do not do what their descriptors say.
#include "sound.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <variant>

#include "names.h"

namespace vtensor::onednn {

namespace {

bool padded(const Desc &desc) { return desc.padded_dims() != desc.dims(); }

bool same_form(const Desc &a, const Desc &b) {
    return a.padded_dims() == b.padded_dims() && a.strides() == b.strides() &&
           a.blocks() == b.blocks();
}

const Desc &desc_of(const Primitive &primitive, const char *name) {
    const auto &arguments = primitive.arguments();
    const auto at = std::ranges::find(arguments, name, &Argument::name) - arguments.begin();
    return primitive.descs()[static_cast<std::size_t>(at)];
}

const Desc &dst_of(const Primitive &primitive) { return desc_of(primitive, "dst"); }

bool has_post_operands(const Attr &attr) {
    return std::ranges::any_of(attr.post_ops(), [](const PostOp &op) {
        return std::holds_alternative<BinaryPostOp>(op);
    });
}

// Reference kernels visit dst's pads as well, and index a follower's operand there.
bool reference_overruns_follower(const Primitive &primitive) {
    return primitive.kernel().starts_with("ref") && has_post_operands(primitive.attr()) &&
           padded(dst_of(primitive));
}

bool dense(const Desc &desc) {
    std::size_t bytes = item_bytes(desc.type());
    for (const dnnl_dim_t dim : desc.padded_dims()) bytes *= static_cast<std::size_t>(dim);
    return desc.offset() == 0 && desc.bytes() == bytes;
}

// Returns whether elements are consecutive in C order; with several long dims it is enough that
// they are dense, since oneDNN compares that format itself.
bool consecutive(const Desc &desc) {
    const auto is_long = [](dnnl_dim_t size) { return size > 1; };
    const auto &dims = desc.dims();
    const auto found = std::ranges::find_if(dims, is_long);
    if (found == dims.end()) return desc.offset() == 0;
    if (std::ranges::count_if(dims, is_long) > 1) return dense(desc);
    const dnnl_dim_t along = found - dims.begin();
    dnnl_dim_t step = 1;
    for (const auto &[block, dim] : desc.blocks()) {
        if (dim != along) return false;
        step *= block;
    }
    return desc.offset() == 0 && desc.strides()[static_cast<std::size_t>(along)] == step;
}

// Compiled kernels read a bias, or a follower's operand, as if its elements were consecutive.
bool side_operand_is_scattered(const Primitive &primitive) {
    if (primitive.kernel().starts_with("ref")) return false;
    for (std::size_t i = 0; i < primitive.descs().size(); ++i) {
        const std::string &name = primitive.arguments()[i].name;
        if ((name == "bias" || name.starts_with("post")) && !consecutive(primitive.descs()[i]))
            return true;
    }
    return false;
}

// The reference element-wise kernel knows the offsets of at most five dims.
bool reference_lacks_dims(const Primitive &primitive) {
    return primitive.kernel().starts_with("ref") && primitive.kind() == "eltwise" &&
           dst_of(primitive).rank() > 5;
}

// On dense memory the reference softmax steps from row to row by the stride of the dim before its
// axis, which says nothing if that dim has one element or is not the next one in memory.
bool reference_softmax_steps_wrong(const Primitive &primitive) {
    if (primitive.kind() != "softmax" || !primitive.kernel().starts_with("ref")) return false;
    int axis = 0;
    check(dnnl_primitive_desc_query(primitive.pd(), dnnl_query_axis_s32, 0, &axis), "softmax");
    const Desc &src = primitive.descs().front();
    const auto at = static_cast<std::size_t>(axis);
    dnnl_dim_t step = 1;
    for (const auto &[block, dim] : src.blocks()) step *= dim == axis ? block : 1;
    const bool last = std::all_of(src.dims().begin() + axis + 1, src.dims().end(),
                                  [](dnnl_dim_t size) { return size == 1; });
    const bool takes_steps = axis > 0 && last && dense(src) && src.strides()[at] == step;
    return takes_steps && src.strides()[at - 1] != src.padded_dims()[at];
}

// The compiled binary kernel takes the number of elements, pads included, of one operand for all.
bool binary_mixes_pads(const Primitive &primitive) {
    if (primitive.kind() != "binary") return false;
    const Desc &dst = dst_of(primitive);
    for (std::size_t i = 0; i < primitive.descs().size(); ++i) {
        const Desc &operand = primitive.descs()[i];
        if (primitive.arguments()[i].name.starts_with("src") && operand.dims() == dst.dims() &&
            (padded(operand) || padded(dst)) && !same_form(operand, dst))
            return true;
    }
    return false;
}

// The pads that kernels compute are not zero if the image holds a NaN or an infinity.
bool deconvolution_leaves_pads(const Primitive &primitive) {
    return primitive.kind() == "deconvolution" && padded(dst_of(primitive));
}

// In a deconvolution on a reference convolution, followers and bias run past the end of memory.
bool reference_deconvolution_overruns(const Primitive &primitive) {
    const auto is_bias = [](const Argument &argument) { return argument.name == "bias"; };
    return primitive.kind() == "deconvolution" &&
           primitive.kernel().find("ref") != std::string::npos &&
           (!primitive.attr().post_ops().empty() ||
            std::ranges::any_of(primitive.arguments(), is_bias));
}

// Kernels disagree about a follower's operand that is broadcast to dst.
bool resampling_confuses_follower(const Primitive &primitive) {
    return primitive.kind() == "resampling" && has_post_operands(primitive.attr());
}

// Kernels walk src, dst and the statistics in one order, from row to row without gaps.
bool layer_normalization_strays(const Primitive &primitive) {
    if (primitive.kind() != "layer_normalization") return false;
    const Desc &src = primitive.descs().front(), &dst = dst_of(primitive);
    const Desc &stat = desc_of(primitive, "mean");
    if (!dense(src) || !same_form(src, dst) || !src.blocks().empty() || !stat.blocks().empty())
        return true;
    for (std::size_t d = 0; d < stat.dims().size(); ++d) {
        if (stat.dims()[d] > 1 && stat.strides()[d] * src.dims().back() != src.strides()[d])
            return true;
    }
    return src.dims().back() > 1 && src.strides().back() != 1;
}

}  // namespace

bool is_sound(const Primitive &primitive) {
    return !reference_overruns_follower(primitive) && !reference_lacks_dims(primitive) &&
           !reference_softmax_steps_wrong(primitive) && !side_operand_is_scattered(primitive) &&
           !binary_mixes_pads(primitive) && !reference_deconvolution_overruns(primitive) &&
           !deconvolution_leaves_pads(primitive) && !resampling_confuses_follower(primitive) &&
           !layer_normalization_strays(primitive);
}

}  // namespace vtensor::onednn
