// native/onednn/window.cpp: primitives with a window over spatial dims: convolution, deconvolution,
// pooling; and resampling.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>
#include <limits>

#include "cache.h"
#include "maxima.h"
#include "names.h"
#include "operators.h"
#include "outrun.h"

namespace vtensor::onednn {

namespace {

void check_numbers(const std::string &what, const char *name, const Ints &values,
                   std::size_t count, dnnl_dim_t least) {
    if (values.size() != count)
        refuse(what, ": ", name, " has ", values.size(), " numbers for ", count, " spatial dims");
    for (const dnnl_dim_t value : values) {
        if (value < least || value > std::numeric_limits<std::int32_t>::max())
            refuse(what, ": ", name, " must be at least ", least, " and fit 32 bits, not ", value);
    }
}

dnnl_dim_t reach(const Window &window, std::size_t d) {
    return (window.kernel[d] - 1) * window.dilations[d] + 1;
}

// Checks that every number is in range and dst has the size that the window gives.
void check_window(const std::string &what, const Desc &src, const Desc &dst,
                  const Window &window) {
    const std::size_t spatial = src.dims().size() - 2;
    check_numbers(what, "kernel", window.kernel, spatial, 1);
    check_numbers(what, "strides", window.strides, spatial, 1);
    check_numbers(what, "dilations", window.dilations, spatial, 1);
    check_numbers(what, "pads_begin", window.pads_begin, spatial, 0);
    check_numbers(what, "pads_end", window.pads_end, spatial, 0);
    for (std::size_t d = 0; d < spatial; ++d) {
        const dnnl_dim_t whole = src.dims()[d + 2] + window.pads_begin[d] + window.pads_end[d];
        if (reach(window, d) > whole)
            refuse(what, ": a window of ", reach(window, d), " does not fit spatial dim ", d,
                   ", which has ", whole, " elements, pads included");
        const dnnl_dim_t size = (whole - reach(window, d)) / window.strides[d] + 1;
        if (dst.dims()[d + 2] != size)
            refuse(what, ": spatial dim ", d, " of dst has ", dst.dims()[d + 2],
                   " elements, it must have ", size);
    }
}

// Checks a deconvolution likewise: each element of src is spread over a window of dst.
void check_spread(const std::string &what, const Desc &src, const Desc &dst,
                  const Window &window) {
    const std::size_t spatial = src.dims().size() - 2;
    check_numbers(what, "kernel", window.kernel, spatial, 1);
    check_numbers(what, "strides", window.strides, spatial, 1);
    check_numbers(what, "dilations", window.dilations, spatial, 1);
    check_numbers(what, "pads_begin", window.pads_begin, spatial, 0);
    check_numbers(what, "pads_end", window.pads_end, spatial,
                  1 - std::ranges::max(window.strides));
    for (std::size_t d = 0; d < spatial; ++d) {
        if (window.pads_end[d] <= -window.strides[d])
            refuse(what, ": pads_end must be above ", -window.strides[d], ", not ",
                   window.pads_end[d]);
        const dnnl_dim_t size = (src.dims()[d + 2] - 1) * window.strides[d] + reach(window, d) -
                                window.pads_begin[d] - window.pads_end[d];
        if (size < 1 || dst.dims()[d + 2] != size)
            refuse(what, ": spatial dim ", d, " of dst has ", dst.dims()[d + 2],
                   " elements, it must have ", size, ", and at least 1");
    }
}

// Returns the gaps between the taps, as oneDNN counts dilations: 0 is dense.
Ints gaps(const Ints &dilations) {
    Ints result = dilations;
    for (dnnl_dim_t &value : result) --value;
    return result;
}

void write_window(KeyWriter &key, const Window &window) {
    key.ints(window.kernel).ints(window.strides).ints(window.dilations);
    key.ints(window.pads_begin).ints(window.pads_end);
}

void check_channels(const std::string &what, const Desc &src, const Desc &weights,
                    const MaybeDesc &bias, const Desc &dst) {
    const bool grouped = weights.rank() == src.rank() + 1;
    const Ints &w = weights.dims();
    const dnnl_dim_t groups = grouped ? w[0] : 1;
    const dnnl_dim_t outputs = groups * w[grouped ? 1 : 0];
    const dnnl_dim_t inputs = groups * w[grouped ? 2 : 1];
    if (src.dims()[1] != inputs)
        refuse(what, ": src has ", src.dims()[1], " channels, weights ", shown(w), " take ", inputs,
               " (", groups, " groups)");
    if (dst.dims()[1] != outputs)
        refuse(what, ": dst has ", dst.dims()[1], " channels, weights ", shown(w), " give ",
               outputs, " (", groups, " groups)");
    if (dst.dims()[0] != src.dims()[0])
        refuse(what, ": src holds ", src.dims()[0], " images, dst ", dst.dims()[0]);
    if (bias && bias->dims() != Ints{outputs})
        refuse(what, ": bias is ", shown(bias->dims()), ", it must be ", outputs);
}

}  // namespace

namespace {

// Returns the descriptor, with channels last if its layout is left open.
Desc channels_last(const Desc &image) {
    if (image.kind() != Desc::Kind::any) return image;
    static constexpr std::array<const char *, 3> kTags{"acb", "acdb", "acdeb"};
    const auto spatial = static_cast<std::size_t>(image.rank()) - 2;
    return Desc::tagged(image.dims(), name_of(image.type()), kTags[spatial - 1]);
}

// Creates a primitive with open layouts. Each kernel chooses layouts of its own; a kernel that may
// be outrun works on channels last only, so faster kernels are asked for with
// that layout.
template <class Create>
dnnl_status_t create_open(dnnl_primitive_desc_t *pd, const Desc &src, const Desc &dst,
                          const Create &create) {
    const Desc last_src = channels_last(src), last_dst = channels_last(dst);
    if (create(pd, last_src.get(), last_dst.get()) == dnnl_success) {
        if (may_be_outrun(kernel_of(*pd))) return dnnl_success;
        const PdHandle other(*pd);
    }
    return create(pd, src.get(), dst.get());
}

using CreateWindow = decltype(&dnnl_convolution_forward_primitive_desc_create);

PrimitivePtr windowed(const std::string &what, CreateWindow create, dnnl_alg_kind_t alg,
                      decltype(&check_window) check_sizes, const Desc &src, const Desc &weights,
                      const MaybeDesc &bias, const Desc &dst, Window window, const Attr &attr) {
    check_operand(what, "src", src);
    check_operand(what, "weights", weights, true);
    if (bias) check_operand(what, "bias", *bias);
    check_written(what, "dst", dst);
    check_rank(what, "src", src, 3, 5);
    check_rank(what, "dst", dst, src.rank(), src.rank());
    check_rank(what, "weights", weights, src.rank(), src.rank() + 1);
    check_channels(what, src, weights, bias, dst);
    const std::size_t spatial = src.dims().size() - 2;
    window.kernel.assign(weights.dims().end() - static_cast<std::ptrdiff_t>(spatial),
                         weights.dims().end());
    check_sizes(what, src, dst, window);
    check_not_from_nothing(what, {&src, &weights}, dst);

    std::vector<Argument> arguments{{"src", DNNL_ARG_SRC, VTENSOR_READ},
                                    {"weights", DNNL_ARG_WEIGHTS, VTENSOR_READ}};
    if (bias) arguments.push_back({"bias", DNNL_ARG_BIAS, VTENSOR_READ});
    arguments.push_back({"dst", DNNL_ARG_DST, VTENSOR_WRITE});
    const bool alone = weights.rank() > src.rank() && weights.dims()[2] == 1;
    const bool small = alone || std::ranges::max(window.kernel) == 1;
    const auto any = Desc::Kind::any;
    const bool open = small && (src.kind() == any || dst.kind() == any) && names_slower_first();
    KeyWriter key;
    key.desc(&src).desc(&weights).desc(pointer(bias)).desc(&dst);
    write_window(key, window);
    return find_or_make({what, key.take(), attr, arguments, dst.dims(),
                         [=, gap = gaps(window.dilations)](auto *pd, auto raw_attr) {
                             const auto with = [&](auto *made, auto src_md, auto dst_md) {
                                 return create(made, engine(), dnnl_forward_inference, alg, src_md,
                                               weights.get(), raw(bias), dst_md,
                                               window.strides.data(), gap.data(),
                                               window.pads_begin.data(), window.pads_end.data(),
                                               raw_attr);
                             };
                             return open ? create_open(pd, src, dst, with)
                                         : with(pd, src.get(), dst.get());
                         }});
}

void check_first_dims(const std::string &what, const Desc &src, const Desc &dst) {
    for (const std::size_t d : {0, 1}) {
        if (src.dims()[d] != dst.dims()[d])
            refuse(what, ": src is ", shown(src.dims()), ", dst ", shown(dst.dims()),
                   "; their first two dims must be equal");
    }
}

}  // namespace

PrimitivePtr convolution(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                         const Desc &dst, Window window, const Attr &attr) {
    return windowed("convolution", &dnnl_convolution_forward_primitive_desc_create,
                    dnnl_convolution_direct, &check_window, src, weights, bias, dst,
                    std::move(window), attr);
}

PrimitivePtr deconvolution(const Desc &src, const Desc &weights, const MaybeDesc &bias,
                           const Desc &dst, Window window, const Attr &attr) {
    return windowed("deconvolution", &dnnl_deconvolution_forward_primitive_desc_create,
                    dnnl_deconvolution_direct, &check_spread, src, weights, bias, dst,
                    std::move(window), attr);
}

PrimitivePtr resampling(const std::string &alg, const Desc &src, const Desc &dst,
                        const Attr &attr) {
    const std::string what = "resampling";
    const dnnl_alg_kind_t kind = algorithm(resampling_algorithms(), alg, what);
    check_operand(what, "src", src);
    check_written(what, "dst", dst);
    check_rank(what, "src", src, 3, 5);
    check_rank(what, "dst", dst, src.rank(), src.rank());
    check_first_dims(what, src, dst);
    check_not_from_nothing(what, {&src}, dst);
    const std::string key = KeyWriter().text(alg).desc(&src).desc(&dst).take();
    return find_or_make({what, key, attr, src_dst(), dst.dims(), [=](auto *pd, auto raw_attr) {
                             return dnnl_resampling_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, kind, nullptr, src.get(),
                                 dst.get(), raw_attr);
                         }});
}

PrimitivePtr pooling(const std::string &kind, const Desc &src, const Desc &dst,
                     const Window &window, const Attr &attr) {
    const std::string what = "pooling";
    const dnnl_alg_kind_t alg = algorithm(pooling_algorithms(), kind, what);
    check_operand(what, "src", src);
    check_written(what, "dst", dst);
    check_rank(what, "src", src, 3, 5);
    check_rank(what, "dst", dst, src.rank(), src.rank());
    check_first_dims(what, src, dst);
    check_window(what, src, dst, window);
    for (std::size_t d = 0; d < window.kernel.size(); ++d) {
        if (std::max(window.pads_begin[d], window.pads_end[d]) >= reach(window, d))
            refuse(what, ": a window of ", reach(window, d), " would lie in the pads (",
                   window.pads_begin[d], ", ", window.pads_end[d], ") of spatial dim ", d);
    }
    check_not_from_nothing(what, {&src}, dst);

    Afterwards afterwards;
    if (alg == dnnl_pooling_max && attr.post_ops().empty()) {
        afterwards = [window](const std::vector<Desc> &descs, void *const *slots, std::uint32_t *) {
            restore_maxima(window, descs[0], descs[1], slots[0], slots[1]);
        };
    }
    KeyWriter key;
    key.text(kind).desc(&src).desc(&dst);
    write_window(key, window);
    return find_or_make({what, key.take(), attr, src_dst(), dst.dims(),
                         [=, gap = gaps(window.dilations)](auto *pd, auto raw_attr) {
                             return dnnl_pooling_forward_primitive_desc_create(
                                 pd, engine(), dnnl_forward_inference, alg, src.get(), dst.get(),
                                 window.strides.data(), window.kernel.data(), gap.data(),
                                 window.pads_begin.data(), window.pads_end.data(), raw_attr);
                         },
                         std::move(afterwards)});
}

}  // namespace vtensor::onednn
