// native/onednn/pointwise.cpp: element-wise primitives: eltwise, binary, prelu, concat, reorder.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "cache.h"
#include "names.h"
#include "operators.h"

namespace vtensor::onednn {

namespace {

// Checks that c has the sizes of a and b, of which dims of 1 broadcast.
void check_broadcast(const std::string &what, const Ints &a, const Ints &b, const Ints &c) {
    bool fits = a.size() == b.size() && a.size() == c.size();
    for (std::size_t d = 0; fits && d < a.size(); ++d)
        fits = (a[d] == b[d] || a[d] == 1 || b[d] == 1) && c[d] == (a[d] == 1 ? b[d] : a[d]);
    if (!fits)
        refuse(what, ": src0 ", shown(a), " and src1 ", shown(b), " do not broadcast to dst ",
               shown(c));
}

bool empty(const Ints &dims) { return std::ranges::find(dims, 0) != dims.end(); }

// Returns the dims of the concatenation.
Ints joined_dims(const std::string &what, int axis, const std::vector<Desc> &srcs) {
    if (srcs.empty()) refuse(what, ": nothing to join");
    check_axis(what, axis, srcs[0].rank());
    const auto along = static_cast<std::size_t>(axis);
    Ints joined = srcs[0].dims();
    joined[along] = 0;
    for (const Desc &src : srcs) {
        Ints expected = joined;
        if (src.rank() == srcs[0].rank()) expected[along] = src.dims()[along];
        if (src.dims() != expected)
            refuse(what, ": ", shown(src.dims()), " does not join ", shown(srcs[0].dims()),
                   " along dim ", axis);
        joined[along] = checked_sum(joined[along], src.dims()[along], "the joined dim");
    }
    return joined;
}

}  // namespace

PrimitivePtr eltwise(const std::string &alg, const Desc &src, const Desc &dst, double alpha,
                     double beta, const Attr &attr) {
    const std::string what = "eltwise";
    const dnnl_alg_kind_t kind = algorithm(eltwise_algorithms(), alg, what);
    check_operand(what, "src", src);
    check_written(what, "dst", dst);
    check_same_dims(what, "src", src, "dst", dst);
    const float a = checked_float(what, "alpha", alpha, false);
    const float b = checked_float(what, "beta", beta, false);
    const std::string key =
        KeyWriter().text(alg).desc(&src).desc(&dst).number(a).number(b).take();
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_eltwise_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, kind, src.get(), dst.get(),
                                 a, b, raw_attr);
                         }});
}

PrimitivePtr binary(const std::string &alg, const Desc &src0, const Desc &src1, const Desc &dst,
                    const Attr &attr) {
    const std::string what = "binary";
    const dnnl_alg_kind_t kind = algorithm(binary_algorithms(), alg, what);
    check_operand(what, "src0", src0);
    check_operand(what, "src1", src1);
    check_written(what, "dst", dst);
    check_broadcast(what, src0.dims(), src1.dims(), dst.dims());
    const std::string key = KeyWriter().text(alg).desc(&src0).desc(&src1).desc(&dst).take();
    return find_or_make({what, key, attr,
                         {{"src0", DNNL_ARG_SRC_0, VTENSOR_READ},
                          {"src1", DNNL_ARG_SRC_1, VTENSOR_READ},
                          {"dst", DNNL_ARG_DST, VTENSOR_WRITE}},
                         dst.dims(),
                         [=](auto *pd, auto raw_attr) {
                             return dnnl_binary_primitive_desc_create(pd, engine(), kind,
                                                                      src0.get(), src1.get(),
                                                                      dst.get(), raw_attr);
                         }});
}

PrimitivePtr prelu(const Desc &src, const Desc &weights, const Desc &dst, const Attr &attr) {
    const std::string what = "prelu";
    check_operand(what, "src", src);
    check_operand(what, "weights", weights);
    check_written(what, "dst", dst);
    check_same_dims(what, "src", src, "dst", dst);
    check_stretches(what, "weights", weights.dims(), src.dims());
    const std::string key = KeyWriter().desc(&src).desc(&weights).desc(&dst).take();
    return find_or_make({what, key, attr,
                         {{"src", DNNL_ARG_SRC, VTENSOR_READ},
                          {"weights", DNNL_ARG_WEIGHTS, VTENSOR_READ},
                          {"dst", DNNL_ARG_DST, VTENSOR_WRITE}},
                         dst.dims(),
                         [=](auto *pd, auto raw_attr) {
                             return dnnl_prelu_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, src.get(), weights.get(),
                                 dst.get(), raw_attr);
                         }});
}

PrimitivePtr concat(int axis, const std::vector<Desc> &srcs, const MaybeDesc &dst,
                    const Attr &attr) {
    const std::string what = "concat";
    const Ints joined = joined_dims(what, axis, srcs);
    KeyWriter key;
    key.ints({axis, static_cast<dnnl_dim_t>(srcs.size())}).desc(pointer(dst));
    std::vector<Argument> arguments;
    for (std::size_t i = 0; i < srcs.size(); ++i) {
        const std::string role = "src" + std::to_string(i);
        check_operand(what, role.c_str(), srcs[i]);
        if (srcs[i].type() != srcs[0].type())
            refuse(what, ": src0 holds ", name_of(srcs[0].type()), ", ", role, " holds ",
                   name_of(srcs[i].type()));
        key.desc(&srcs[i]);
        arguments.push_back(
            {role, DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), VTENSOR_READ});
    }
    arguments.push_back({"dst", DNNL_ARG_DST, VTENSOR_WRITE});
    if (dst) {
        check_written(what, "dst", *dst);
        if (dst->dims() != joined)
            refuse(what, ": dst is ", shown(dst->dims()), ", it must be ", shown(joined));
    }
    for (std::size_t i = 0; i < srcs.size() && !empty(joined); ++i) {
        if (srcs[i].empty())  // a kernel for an empty source ends the process
            throw Unimplemented(what + ": src" + std::to_string(i) + " has no elements");
    }
    return find_or_make({what, key.take(), attr, arguments, joined, [=](auto *pd, auto raw_attr) {
                             std::vector<const_dnnl_memory_desc_t> parts;
                             for (const Desc &src : srcs) parts.push_back(src.get());
                             return dnnl_concat_primitive_desc_create(
                                 pd, engine(), raw(dst), static_cast<int>(parts.size()), axis,
                                 parts.data(), raw_attr);
                         }});
}

PrimitivePtr reorder(const Desc &src, const Desc &dst, const Attr &attr) {
    const std::string what = "reorder";
    check_operand(what, "src", src, true);
    check_written(what, "dst", dst, true);
    check_same_dims(what, "src", src, "dst", dst);
    if (src.kind() == Desc::Kind::any || dst.kind() == Desc::Kind::any)
        refuse(what, ": both forms must be known, neither can be any");
    const std::string key = KeyWriter().desc(&src).desc(&dst).take();
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_reorder_primitive_desc_create(
                                 pd, src.get(), engine(), dst.get(), engine(), raw_attr);
                         }});
}

}  // namespace vtensor::onednn
