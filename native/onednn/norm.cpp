// native/onednn/norm.cpp: primitives along a dim: batch normalization, layer normalization,
// softmax, local response normalization, reduction.
#include <oneapi/dnnl/dnnl.h>

#include "cache.h"
#include "maxima.h"
#include "names.h"
#include "operators.h"

namespace vtensor::onednn {

namespace {

constexpr dnnl_dim_t kLargestWindow = 1 << 20;

void check_pair(const std::string &what, const Desc &src, const Desc &dst) {
    check_operand(what, "src", src);
    check_written(what, "dst", dst);
    check_same_dims(what, "src", src, "dst", dst);
}

}  // namespace

PrimitivePtr batch_normalization(const Desc &src, const Desc &dst, double epsilon,
                                 BatchNormFlags flags, const Attr &attr) {
    const std::string what = "batch_normalization";
    check_pair(what, src, dst);
    check_rank(what, "src", src, 2, 5);
    const float eps = checked_float(what, "epsilon", epsilon);
    if (eps < 0) refuse(what, ": epsilon must not be negative, it is ", epsilon);
    unsigned bits = dnnl_use_global_stats;
    std::vector<Argument> arguments{{"src", DNNL_ARG_SRC, VTENSOR_READ},
                                    {"mean", DNNL_ARG_MEAN, VTENSOR_READ},
                                    {"variance", DNNL_ARG_VARIANCE, VTENSOR_READ}};
    if (flags.scale) {
        bits |= dnnl_use_scale;
        arguments.push_back({"scale", DNNL_ARG_SCALE, VTENSOR_READ});
    }
    if (flags.shift) {
        bits |= dnnl_use_shift;
        arguments.push_back({"shift", DNNL_ARG_SHIFT, VTENSOR_READ});
    }
    if (flags.relu) bits |= dnnl_fuse_norm_relu;
    arguments.push_back({"dst", DNNL_ARG_DST, VTENSOR_WRITE});
    const std::string key = KeyWriter().desc(&src).desc(&dst).number(eps).ints({bits}).take();
    return find_or_make({what, key, attr, arguments, dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_batch_normalization_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, src.get(), dst.get(), eps,
                                 bits, raw_attr);
                         }});
}

PrimitivePtr layer_normalization(const Desc &src, const Desc &stat, const Desc &dst,
                                 double epsilon, bool scale, bool shift, const Attr &attr) {
    const std::string what = "layer_normalization";
    check_pair(what, src, dst);
    check_rank(what, "src", src, 2, 5);
    check_written(what, "stat", stat);
    if (stat.type() != dnnl_f32 || stat.dims() != Ints(src.dims().begin(), src.dims().end() - 1))
        refuse(what, ": stat must be f32 and ", shown(src.dims()), " without its last dim, not ",
               shown(stat.dims()));
    const float eps = checked_float(what, "epsilon", epsilon);
    if (eps < 0) refuse(what, ": epsilon must not be negative, it is ", epsilon);
    check_not_from_nothing(what, {&src}, stat);
    unsigned bits = dnnl_normalization_flags_none;
    std::vector<Argument> arguments{{"src", DNNL_ARG_SRC, VTENSOR_READ}};
    if (scale) {
        bits |= dnnl_use_scale;
        arguments.push_back({"scale", DNNL_ARG_SCALE, VTENSOR_READ});
    }
    if (shift) {
        bits |= dnnl_use_shift;
        arguments.push_back({"shift", DNNL_ARG_SHIFT, VTENSOR_READ});
    }
    arguments.insert(arguments.end(), {{"mean", DNNL_ARG_MEAN, VTENSOR_WRITE},
                                       {"variance", DNNL_ARG_VARIANCE, VTENSOR_WRITE},
                                       {"dst", DNNL_ARG_DST, VTENSOR_WRITE}});
    const std::string key =
        KeyWriter().desc(&src).desc(&stat).desc(&dst).number(eps).ints({bits}).take();
    // Only forward training returns the statistics.
    return find_or_make({what, key, attr, arguments, dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_layer_normalization_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_training, src.get(), dst.get(),
                                 stat.get(), eps, bits, raw_attr);
                         }});
}

PrimitivePtr softmax(const Desc &src, const Desc &dst, int axis, bool log, const Attr &attr) {
    const std::string what = "softmax";
    check_pair(what, src, dst);
    check_axis(what, axis, src.rank());
    const dnnl_alg_kind_t kind = log ? dnnl_softmax_log : dnnl_softmax_accurate;
    const std::string key =
        KeyWriter().desc(&src).desc(&dst).ints({axis, static_cast<dnnl_dim_t>(log)}).take();
    Afterwards afterwards;
    if (attr.post_ops().empty()) {
        afterwards = [=](const std::vector<Desc> &descs, void *const *slots, std::uint32_t *) {
            spread_nan(axis, log, descs[1], slots[1]);
        };
    }
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_softmax_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, kind, src.get(), dst.get(),
                                 axis, raw_attr);
                         },
                         std::move(afterwards)});
}

PrimitivePtr lrn(const std::string &alg, const Desc &src, const Desc &dst, dnnl_dim_t size,
                 double alpha, double beta, double k, const Attr &attr) {
    const std::string what = "lrn";
    const dnnl_alg_kind_t kind = algorithm(lrn_algorithms(), alg, what);
    check_pair(what, src, dst);
    check_rank(what, "src", src, kind == dnnl_lrn_within_channel ? 3 : 2, 5);
    // For an even size oneDNN takes one element fewer but divides by the size, which no definition
    // does.
    if (size < 1 || size % 2 == 0 || size > kLargestWindow)
        refuse(what, ": size must be odd and 1 to ", kLargestWindow, ", not ", size);
    const float a = checked_float(what, "alpha", alpha);
    const float b = checked_float(what, "beta", beta);
    const float bias = checked_float(what, "k", k);
    const std::string key = KeyWriter().text(alg).desc(&src).desc(&dst).ints({size})
                                .number(a).number(b).number(bias).take();
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_lrn_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, kind, src.get(), dst.get(),
                                 size, a, b, bias, raw_attr);
                         }});
}

PrimitivePtr reduction(const std::string &alg, const Desc &src, const Desc &dst, double p,
                       double eps, const Attr &attr) {
    const std::string what = "reduction";
    const dnnl_alg_kind_t kind = algorithm(reduction_algorithms(), alg, what);
    check_operand(what, "src", src);
    check_written(what, "dst", dst);
    check_stretches(what, "dst", dst.dims(), src.dims());
    const float power = checked_float(what, "p", p);
    const float epsilon = checked_float(what, "eps", eps);
    if (kind >= dnnl_reduction_norm_lp_max && power < 1)
        refuse(what, ": a norm's p must be at least 1, not ", p);
    check_not_from_nothing(what, {&src}, dst);
    const std::string key =
        KeyWriter().text(alg).desc(&src).desc(&dst).number(power).number(epsilon).take();
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_reduction_primitive_desc_create(
                                 pd, engine(), kind, src.get(), dst.get(), power, epsilon,
                                 raw_attr);
                         }});
}

}  // namespace vtensor::onednn
