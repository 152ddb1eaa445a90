// native/onednn/matrix.cpp: matrix products: matmul, inner product.
#include <oneapi/dnnl/dnnl.h>

#include "cache.h"
#include "operators.h"

namespace vtensor::onednn {

namespace {

std::vector<Argument> product_arguments(bool bias) {
    std::vector<Argument> arguments{{"src", DNNL_ARG_SRC, VTENSOR_READ},
                                    {"weights", DNNL_ARG_WEIGHTS, VTENSOR_READ}};
    if (bias) arguments.push_back({"bias", DNNL_ARG_BIAS, VTENSOR_READ});
    arguments.push_back({"dst", DNNL_ARG_DST, VTENSOR_WRITE});
    return arguments;
}

void check_operands(const std::string &what, const Desc &src, const Desc &weights,
                    const MaybeDesc &bias, const Desc &dst) {
    check_operand(what, "src", src);
    check_operand(what, "weights", weights, true);
    if (bias) check_operand(what, "bias", *bias);
    check_written(what, "dst", dst);
    check_not_from_nothing(what, {&src, &weights}, dst);
}

std::string operands_key(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                         const Desc &dst) {
    return KeyWriter().desc(&src).desc(&weights).desc(pointer(bias)).desc(&dst).take();
}

// Checks that M x K times K x N is M x N, for every index of the leading dims, where dims of 1
// broadcast.
void check_matmul_dims(const std::string &what, const Desc &src, const Desc &weights,
                       const Desc &dst) {
    const Ints &a = src.dims(), &b = weights.dims(), &c = dst.dims();
    const std::size_t row = c.size() - 2, column = c.size() - 1;
    bool fits = a[column] == b[row] && c[row] == a[row] && c[column] == b[column];
    for (std::size_t d = 0; d < row; ++d) {
        const bool agree = a[d] == b[d] || a[d] == 1 || b[d] == 1;
        fits = fits && agree && c[d] == (a[d] == 1 ? b[d] : a[d]);
    }
    if (!fits)
        refuse(what, ": ", shown(a), " times ", shown(b), " is not ", shown(c));
}

}  // namespace

PrimitivePtr matmul(const Desc &src, const Desc &weights, const MaybeDesc &bias, const Desc &dst,
                    const Attr &attr) {
    const std::string what = "matmul";
    check_rank(what, "src", src, 2, DNNL_MAX_NDIMS);
    check_rank(what, "weights", weights, src.rank(), src.rank());
    check_rank(what, "dst", dst, src.rank(), src.rank());
    check_matmul_dims(what, src, weights, dst);
    if (bias) check_stretches(what, "bias", bias->dims(), dst.dims());
    check_operands(what, src, weights, bias, dst);
    return find_or_make({what, operands_key(src, weights, bias, dst), attr,
                         product_arguments(bias.has_value()), dst.dims(),
                         [=](auto *pd, auto raw_attr) {
                             return dnnl_matmul_primitive_desc_create(
                                 pd, engine(), src.get(), weights.get(), raw(bias), dst.get(),
                                 raw_attr);
                         }});
}

PrimitivePtr inner_product(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                           const Desc &dst, const Attr &attr) {
    const std::string what = "inner_product";
    check_rank(what, "src", src, 2, 5);
    check_rank(what, "weights", weights, src.rank(), src.rank());
    check_rank(what, "dst", dst, 2, 2);
    Ints taken = src.dims();
    taken[0] = weights.dims()[0];
    if (weights.dims() != taken)
        refuse(what, ": weights are ", shown(weights.dims()), ", src is ", shown(src.dims()),
               "; all dims but the first must be equal");
    if (dst.dims() != Ints{src.dims()[0], weights.dims()[0]})
        refuse(what, ": dst is ", shown(dst.dims()), ", it must be ",
               shown({src.dims()[0], weights.dims()[0]}));
    if (bias && bias->dims() != Ints{weights.dims()[0]})
        refuse(what, ": bias is ", shown(bias->dims()), ", it must be ", weights.dims()[0]);
    check_operands(what, src, weights, bias, dst);
    return find_or_make({what, operands_key(src, weights, bias, dst), attr,
                         product_arguments(bias.has_value()), dst.dims(),
                         [=](auto *pd, auto raw_attr) {
                             return dnnl_inner_product_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, src.get(), weights.get(),
                                 raw(bias), dst.get(), raw_attr);
                         }});
}

}  // namespace vtensor::onednn
