// native/onednn/operators.h: one function for each kind of primitive. Each checks its arguments
// (std::invalid_argument), then looks into the cache or asks oneDNN (Unimplemented).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attr.h"
#include "check.h"
#include "desc.h"
#include "primitive.h"

namespace vtensor::onednn {

using PrimitivePtr = std::shared_ptr<Primitive>;
using MaybeDesc = std::optional<Desc>;

inline const_dnnl_memory_desc_t raw(const MaybeDesc &desc) {
    return desc ? desc->get() : nullptr;
}
inline const Desc *pointer(const MaybeDesc &desc) { return desc ? &*desc : nullptr; }

// Returns the arguments of a primitive with one input and one output.
inline std::vector<Argument> src_dst() {
    return {{"src", DNNL_ARG_SRC, VTENSOR_READ}, {"dst", DNNL_ARG_DST, VTENSOR_WRITE}};
}

// A window: one number per spatial dim. Dilations are as in ONNX: 1 is dense.
struct Window {
    Ints kernel, strides, dilations, pads_begin, pads_end;
};

// Defined in window.cpp.
PrimitivePtr convolution(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                         const Desc &dst, Window window, const Attr &attr);
// A transposed convolution. An end pad may be negative, by less than a stride, which extends dst.
PrimitivePtr deconvolution(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                           const Desc &dst, Window window, const Attr &attr);
PrimitivePtr resampling(const std::string &alg, const Desc &src, const Desc &dst,
                        const Attr &attr);
PrimitivePtr pooling(const std::string &kind, const Desc &src, const Desc &dst,
                     const Window &window, const Attr &attr);

// Defined in matrix.cpp.
PrimitivePtr matmul(const Desc &src, const Desc &weights, const MaybeDesc &bias, const Desc &dst,
                    const Attr &attr);
PrimitivePtr inner_product(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                           const Desc &dst, const Attr &attr);

// Defined in pointwise.cpp.
PrimitivePtr eltwise(const std::string &alg, const Desc &src, const Desc &dst, double alpha,
                     double beta, const Attr &attr);
PrimitivePtr binary(const std::string &alg, const Desc &src0, const Desc &src1, const Desc &dst,
                    const Attr &attr);
PrimitivePtr prelu(const Desc &src, const Desc &weights, const Desc &dst, const Attr &attr);
PrimitivePtr concat(int axis, const std::vector<Desc> &srcs, const MaybeDesc &dst,
                    const Attr &attr);
PrimitivePtr reorder(const Desc &src, const Desc &dst, const Attr &attr);

// Defined in recurrent.cpp; dims are oneDNN's: weights l d i g o (layers, of which there is 1,
// directions, inputs, gates, outputs). `content`, the state of the cell, is for lstm only.
struct Sequence {
    Desc src, weights, recurrent, dst, last_hidden;
    MaybeDesc bias, peephole, hidden, content, last_content;
};
PrimitivePtr recurrent(const std::string &kind, const std::string &direction,
                       const Sequence &sequence, const std::string &activation, double alpha);

// Defined in norm.cpp.
struct BatchNormFlags {
    bool scale, shift, relu;
};
PrimitivePtr batch_normalization(const Desc &src, const Desc &dst, double epsilon,
                                 BatchNormFlags flags, const Attr &attr);
PrimitivePtr layer_normalization(const Desc &src, const Desc &stat, const Desc &dst,
                                 double epsilon, bool scale, bool shift, const Attr &attr);
PrimitivePtr softmax(const Desc &src, const Desc &dst, int axis, bool log, const Attr &attr);
PrimitivePtr lrn(const std::string &alg, const Desc &src, const Desc &dst, dnnl_dim_t size,
                 double alpha, double beta, double k, const Attr &attr);
PrimitivePtr reduction(const std::string &alg, const Desc &src, const Desc &dst, double p,
                       double eps, const Attr &attr);

}  // namespace vtensor::onednn
