// native/onednn/module_primitive.cpp: Primitive and the functions that make one, as Python sees
// them.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <utility>

#include "apart.h"
#include "cache.h"
#include "module.h"
#include "operators.h"
#include "planes.h"
#include "rectify.h"
#include "vtensor/interpreter.h"

using namespace nanobind::literals;

namespace vtensor::onednn {

namespace {

using WithoutLock = nb::call_guard<Unlocked>;

MaybeDesc maybe(const Desc *desc) { return desc == nullptr ? MaybeDesc() : MaybeDesc(*desc); }
Attr or_plain(const Attr *attr) { return attr == nullptr ? Attr() : *attr; }

nb::dict plane_descs(const InPlanes &planes) {
    nb::dict found;
    for (std::size_t i = 0; i < planes.descs().size(); ++i)
        found[planes.names()[i].c_str()] = planes.descs()[i];
    return found;
}

nb::dict descs(const Primitive &primitive) {
    nb::dict found;
    for (std::size_t i = 0; i < primitive.descs().size(); ++i) {
        const std::string &name = primitive.arguments()[i].name;
        if (name != "scratch") found[name.c_str()] = primitive.descs()[i];
    }
    return found;
}

nb::tuple slots(const Primitive &primitive) {
    nb::list names;
    for (const Argument &argument : primitive.arguments()) names.append(argument.name);
    return nb::tuple(names);
}

void release_step(PyObject *capsule) {
    void *pointer = PyCapsule_GetPointer(capsule, VTENSOR_STEP_CAPSULE);
    const auto *step = static_cast<const vtensor_step *>(pointer);
    step->release(step->context);
}

template <typename Stepped>
nb::object step_capsule(Stepped &primitive) {
    const vtensor_step *step = nullptr;
    {
        const Unlocked unlocked;  // the first call compiles
        step = primitive.retained_step();
    }
    PyObject *capsule =
        PyCapsule_New(const_cast<vtensor_step *>(step), VTENSOR_STEP_CAPSULE, &release_step);
    if (capsule == nullptr) {
        step->release(step->context);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

// A step without memory that compiles a primitive. It ignores a failure: a later request for the
// primitive's own step reports it.
struct Compiling {
    std::shared_ptr<Primitive> primitive;
    std::atomic<std::size_t> owners{1};
    vtensor_step step{};

    explicit Compiling(std::shared_ptr<Primitive> one) : primitive(std::move(one)) {
        step.abi = VTENSOR_STEP_ABI;
        step.struct_bytes = sizeof step;
        step.kernel = "compile";
        step.context = this;
        step.run = [](void *context, void *const *, const vtensor_run *) {
            try {
                const vtensor_step *made =
                    static_cast<Compiling *>(context)->primitive->retained_step();
                made->release(made->context);
            } catch (...) {
            }
            return 0;
        };
        step.retain = [](void *context) { ++static_cast<Compiling *>(context)->owners; };
        step.release = [](void *context) {
            auto *const one = static_cast<Compiling *>(context);
            if (--one->owners == 0) delete one;
        };
    }
};

nb::object compiling_capsule(std::shared_ptr<Primitive> primitive) {
    auto made = std::make_unique<Compiling>(std::move(primitive));
    PyObject *capsule = PyCapsule_New(&made->step, VTENSOR_STEP_CAPSULE, &release_step);
    if (capsule == nullptr) throw nb::python_error();
    made.release();  // owned by the capsule
    return nb::steal(capsule);
}

void bind_primitive(nb::module_ &m) {
    nb::class_<Primitive>(m, "Primitive", nb::is_final(), R"(A kernel of oneDNN for one request.

The first ``__vtensor_step__`` compiles it. It always runs with ``threads`` OpenMP threads,
whichever thread runs it: the number that was set in the thread that made the primitive.)")
        .def_prop_ro("kind", &Primitive::kind)
        .def_prop_ro("kernel", &Primitive::kernel,
                     R"(oneDNN's name of the implementation, such as "jit:avx512_core".)")
        .def_prop_ro("scratch_bytes", &Primitive::scratch_bytes)
        .def_prop_ro("threads", &Primitive::threads)
        .def_prop_ro("descs", &descs, nb::sig("def descs(self) -> dict[str, Desc]"),
                     R"(The descriptor of each slot but scratch, by the slot's name.

An open layout is replaced by the one that oneDNN chose.)")
        .def_prop_ro("slots", &slots, nb::sig("def slots(self) -> tuple[str, ...]"),
                     R"(The names of the step's slots in order; "scratch", if any, is last.)")
        .def("next_kernel", &Primitive::next_kernel, WithoutLock(),
             nb::sig("def next_kernel(self) -> Primitive | None"),
             R"(Return the next implementation that oneDNN offers for the same request.

None if this is the last one.)")
        .def("__vtensor_step__", &step_capsule<Primitive>,
             "Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it.")
        .def("compiling", &compiling_capsule,
             R"(Return a capsule with a step without slots that compiles this primitive.

Any thread may run it. It ignores a failure, which ``__vtensor_step__`` then raises.)")
        .def("__repr__", [](const Primitive &p) {
            return "Primitive(" + p.kind() + ", " + p.kernel() + ")";
        });
}

void bind_planes(nb::module_ &m) {
    nb::class_<InPlanes>(m, "InPlanes", nb::is_final(), R"(Primitives on f32 as sums of two bf16.

Its attributes are those of ``Primitive``. It has one kernel. It splits src, which is f32.)")
        .def_prop_ro("kind", &InPlanes::kind)
        .def_prop_ro("kernel", &InPlanes::kernel)
        .def_prop_ro("scratch_bytes", &InPlanes::scratch_bytes)
        .def_prop_ro("threads", &InPlanes::threads)
        .def_prop_ro("descs", &plane_descs, nb::sig("def descs(self) -> dict[str, Desc]"),
                     "The descriptor of each slot but scratch; of one plane where there are two.")
        .def_prop_ro(
            "slots", [](const InPlanes &planes) { return nb::tuple(nb::cast(planes.names())); },
            nb::sig("def slots(self) -> tuple[str, ...]"),
            R"(The names of the step's slots in order; "scratch", if any, is last.)")
        .def(
            "next_kernel", [](const InPlanes &) { return nb::none(); },
            nb::sig("def next_kernel(self) -> None"), "Return None: there is one kernel.")
        .def("__vtensor_step__", &step_capsule<InPlanes>,
             "Return the step in a capsule, as native/include/vtensor/step.h defines it.")
        .def("__repr__", [](const InPlanes &p) {
            return "InPlanes(" + p.kind() + ", " + p.kernel() + ")";
        });
    m.def("product_in_planes", &InPlanes::product, "primitives"_a, WithoutLock(),
          R"(Make a product of f32 by three products of bf16: lo * hi + hi * lo + hi * hi.

With two primitives, weights have one plane, and hi * lo is missing. All compute f32 from bf16
in one layout: the first without followers; the second of three with a sum; the last with the
addition of an operand like dst, then the followers. Slots: those of the last without that
operand. Each plane of weights is in the layout of its descriptor.)");
    m.def("reorder_to_planes", &InPlanes::reorder, "whole"_a, "planes"_a, WithoutLock(),
          R"(Make a reorder of f32 to one plane or two planes of bf16; slots src, dst, scratch.

``whole``: the reorder from f32 to f32 in the layout of a plane. To one plane the step rounds
as ml_dtypes does: subnormal numbers stay, and a NaN becomes the quiet NaN of its sign.)");
}

void bind_windows(nb::module_ &m) {
    m.def(
        "convolution",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst, Ints strides,
           Ints dilations, Ints begin, Ints end, const Attr *attr) {
            return convolution(src, weights, maybe(bias), dst,
                               {{}, strides, dilations, begin, end}, or_plain(attr));
        },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "strides"_a, "dilations"_a,
        "pads_begin"_a, "pads_end"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a convolution over 1 to 3 spatial dims; slots src, weights, bias (if given), dst.

Dims: src N C ..., weights O I ... or G O I ... (O and I of one group), bias O, dst N O ...
Strides, dilations (1: dense) and pads have one number for each spatial dim, in elements.
Any operand may be a ``Desc.any``.)");
    m.def(
        "deconvolution",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst, Ints strides,
           Ints dilations, Ints begin, Ints end, const Attr *attr) {
            return deconvolution(src, weights, maybe(bias), dst,
                                 {{}, strides, dilations, begin, end}, or_plain(attr));
        },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "strides"_a, "dilations"_a,
        "pads_begin"_a, "pads_end"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a transposed convolution over 1 to 3 spatial dims.

Slots and dims as for convolution. Each element of src, times the filter, is added to a
window of dst. Pads are cut off dst; an end pad below 0, by less than a stride, makes dst
larger. Any operand may be a ``Desc.any``.)");
    m.def(
        "resampling",
        [](const std::string &alg, const Desc &src, const Desc &dst, const Attr *attr) {
            return resampling(alg, src, dst, or_plain(attr));
        },
        "alg"_a, "src"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make an interpolation of src to dst's sizes along 1 to 3 spatial dims; slots src, dst.

``alg``: "nearest" or "linear". Element y of dst is the value of src at
(y + 0.5) * src size / dst size - 0.5. dst may be a ``Desc.any``.)");
    m.def(
        "pooling",
        [](const std::string &kind, const Desc &src, const Desc &dst, Ints kernel, Ints strides,
           Ints dilations, Ints begin, Ints end, const Attr *attr) {
            return pooling(kind, src, dst, {kernel, strides, dilations, begin, end},
                           or_plain(attr));
        },
        "kind"_a, "src"_a, "dst"_a, "kernel"_a, "strides"_a, "dilations"_a, "pads_begin"_a,
        "pads_end"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a pooling over 1 to 3 spatial dims; slots src, dst.

``kind``: "max", "avg_include_padding" or "avg_exclude_padding". ``kernel``: the window's
sizes; these, strides, dilations (1: dense) and pads have one number for each spatial dim.
dst may be a ``Desc.any``.)");
}

void bind_products(nb::module_ &m) {
    m.def(
        "matmul",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst,
           const Attr *attr) { return matmul(src, weights, maybe(bias), dst, or_plain(attr)); },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a matrix product: src (... M K) times weights (... K N), plus bias.

Equal ranks of at least 2; leading dims of 1 broadcast; bias broadcasts to dst. Slots: src,
weights, bias (if given), dst. Any operand may be a ``Desc.any``.)");
    m.def(
        "inner_product",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst,
           const Attr *attr) {
            return inner_product(src, weights, maybe(bias), dst, or_plain(attr));
        },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make an inner product: src (N C ...) times weights (O C ...), plus bias (O); dst is N O.

It sums over all dims but N and O. Slots: src, weights, bias (if given), dst. Any operand
may be a ``Desc.any``.)");
}

void bind_pointwise(nb::module_ &m) {
    m.def(
        "eltwise",
        [](const std::string &alg, const Desc &src, const Desc &dst, double alpha, double beta,
           const Attr *attr) { return eltwise(alg, src, dst, alpha, beta, or_plain(attr)); },
        "alg"_a, "src"_a, "dst"_a, "alpha"_a = 0.0, "beta"_a = 0.0, "attr"_a = nb::none(),
        WithoutLock(),
        R"(Make an operation on each element: ``alg``, one of eltwise_algs().

``alpha``, ``beta``: the parameters of ``alg``. Slots: src, dst, which may be the same
memory.)");
    m.def(
        "binary",
        [](const std::string &alg, const Desc &src0, const Desc &src1, const Desc &dst,
           const Attr *attr) { return binary(alg, src0, src1, dst, or_plain(attr)); },
        "alg"_a, "src0"_a, "src1"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make an operation on pairs of elements: ``alg``, one of binary_algs().

Dims of 1 broadcast. Slots: src0, src1, dst.)");
    m.def(
        "prelu",
        [](const Desc &src, const Desc &weights, const Desc &dst, const Attr *attr) {
            return prelu(src, weights, dst, or_plain(attr));
        },
        "src"_a, "weights"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a PReLU: src, times weights where src is below 0; weights broadcast to src.

Slots: src, weights, dst.)");
    m.def(
        "concat",
        [](int axis, const std::vector<Desc> &srcs, const Desc *dst, const Attr *attr) {
            return concat(axis, srcs, maybe(dst), or_plain(attr));
        },
        "axis"_a, "srcs"_a, "dst"_a = nb::none(), "attr"_a = nb::none(), WithoutLock(),
        R"(Make a concatenation along dim ``axis``; slots src0, src1, ..., dst.

Without ``dst``, oneDNN chooses the layout of the result.)");
    m.def(
        "reorder",
        [](const Desc &src, const Desc &dst, const Attr *attr) {
            return reorder(src, dst, or_plain(attr));
        },
        "src"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a copy in another layout or element type; slots src, dst.

A conversion to integers rounds to even and saturates.)");
}

void bind_norms(nb::module_ &m) {
    m.def(
        "batch_normalization",
        [](const Desc &src, const Desc &dst, double epsilon, bool scale, bool shift, bool relu,
           const Attr *attr) {
            return batch_normalization(src, dst, epsilon, {scale, shift, relu}, or_plain(attr));
        },
        "src"_a, "dst"_a, "epsilon"_a, "scale"_a = true, "shift"_a = true, "relu"_a = false,
        "attr"_a = nb::none(), WithoutLock(),
        R"(Make a normalization of each channel (dim 1).

dst = (src - mean) / sqrt(variance + epsilon) * scale + shift; with ``relu``, max(0,
that). mean, variance, scale and shift have one element of f32 for each channel. Slots:
src, mean, variance, scale (if ``scale``), shift (if ``shift``), dst.)");
    m.def(
        "layer_normalization",
        [](const Desc &src, const Desc &stat, const Desc &dst, double epsilon, bool scale,
           bool shift, const Attr *attr) {
            return layer_normalization(src, stat, dst, epsilon, scale, shift, or_plain(attr));
        },
        "src"_a, "stat"_a, "dst"_a, "epsilon"_a, "scale"_a = true, "shift"_a = true,
        "attr"_a = nb::none(), WithoutLock(),
        R"(Make a normalization over the last dim.

dst = (src - mean) / sqrt(variance + epsilon) * scale + shift. mean and variance are
results with the descriptor ``stat``: f32 with src's dims but the last. scale and shift
have one element of f32 for each element of the last dim. Slots: src, scale (if
``scale``), shift (if ``shift``), mean, variance, dst.)");
    m.def(
        "recurrent",
        [](const std::string &kind, const std::string &direction, const Desc &src,
           const Desc &weights, const Desc &recurrent_weights, const Desc &dst,
           const Desc &last_hidden, const Desc *bias, const Desc *peephole, const Desc *hidden,
           const Desc *content, const Desc *last_content, const std::string &activation,
           double alpha) {
            return recurrent(kind, direction,
                             {src, weights, recurrent_weights, dst, last_hidden, maybe(bias),
                              maybe(peephole), maybe(hidden), maybe(content), maybe(last_content)},
                             activation, alpha);
        },
        "kind"_a, "direction"_a, "src_layer"_a, "weights_layer"_a, "weights_iter"_a,
        "dst_layer"_a, "dst_iter"_a, "bias"_a = nb::none(), "weights_peephole"_a = nb::none(),
        "src_iter"_a = nb::none(), "src_iter_c"_a = nb::none(), "dst_iter_c"_a = nb::none(),
        "activation"_a = "", "alpha"_a = 0.0, WithoutLock(),
        R"(Make a layer of a recurrent network of f32; a slot for each descriptor, by its name.

Args:
    kind: "vanilla_rnn" (with ``activation`` "relu", of slope ``alpha``, "tanh" or
        "logistic"), "lstm" (gates i f c o), "gru" (u r o), or "lbr_gru", which resets after
        the product.
    direction: "forward", "reverse" or "bidirectional".

Dims: src_layer T N C, weights_layer 1 D C G O, weights_iter 1 D O G O, bias 1 D G O (one
gate more for "lbr_gru"), weights_peephole 1 D 3 O, src_iter and dst_iter (with _c: an
lstm's cell state) 1 D N O, dst_layer T N D*O; T time steps, D directions, G gates, O
units. Weights may be a ``Desc.any``.)");
    m.def(
        "softmax",
        [](const Desc &src, const Desc &dst, int axis, bool log, const Attr *attr) {
            return softmax(src, dst, axis, log, or_plain(attr));
        },
        "src"_a, "dst"_a, "axis"_a, "log"_a = false, "attr"_a = nb::none(), WithoutLock(),
        "Make a softmax along dim ``axis`` (0 to rank - 1), or its logarithm; slots src, dst.");
    m.def(
        "lrn",
        [](const std::string &alg, const Desc &src, const Desc &dst, dnnl_dim_t size,
           double alpha, double beta, double k, const Attr *attr) {
            return lrn(alg, src, dst, size, alpha, beta, k, or_plain(attr));
        },
        "alg"_a, "src"_a, "dst"_a, "size"_a, "alpha"_a, "beta"_a, "k"_a, "attr"_a = nb::none(),
        WithoutLock(),
        R"(Make a local response normalization, over a window of n elements.

dst = src * (k + alpha / n * sum of squares) ** -beta. ``alg``: "across_channels" (n is
size) or "within_channel" (n is size to the power of the number of spatial dims). ``size``
is odd. Slots: src, dst.)");
    m.def(
        "reduction",
        [](const std::string &alg, const Desc &src, const Desc &dst, double p, double eps,
           const Attr *attr) { return reduction(alg, src, dst, p, eps, or_plain(attr)); },
        "alg"_a, "src"_a, "dst"_a, "p"_a = 0.0, "eps"_a = 0.0, "attr"_a = nb::none(), WithoutLock(),
        R"(Make a reduction by ``alg``, one of reduction_algs(); slots src, dst.

It reduces the dims of which dst has 1 element and src more. ``p``, at
least 1, and ``eps`` are the parameters of the norms.)");
}

void bind_cache(nb::module_ &m) {
    m.def(
        "bounds_info",
        [] {
            const BoundsInfo info = bounds_info();
            nb::dict answer;
            answer["searches"] = info.searches;
            answer["repeats"] = info.repeats;
            return answer;
        },
        nb::sig("def bounds_info() -> dict[str, int]"),
        R"(Return how often Attr.bounds and Attr.gelu needed work after a kernel of oneDNN.

``searches``: number of results that were searched for wrong numbers since a flag of the
processor said that there may be some; ``repeats``: number of runs that were repeated
without bounds or gelu, which were then applied exactly.)");
    m.def(
        "cache_info",
        [] {
            const CacheInfo info = cache_info();
            nb::dict answer;
            answer["hits"] = info.hits;
            answer["misses"] = info.misses;
            answer["size"] = info.size;
            answer["capacity"] = info.capacity;
            return answer;
        },
        nb::sig("def cache_info() -> dict[str, int]"),
        R"(Return the counts of the cache, in which equal requests find one primitive.

``hits``, ``misses``: requests; ``size``: primitives that it holds, ``capacity`` at most.)");
    m.def("cache_let_go", &cache_let_go, WithoutLock(),
          R"(Release the primitives that the calling thread has made since its last call of this.

A primitive stays if a step holds it, if it is among those used last, or if oneDNN never
frees its code.)");
    m.def("cache_clear", &cache_clear, WithoutLock(),
          "Empty the cache, and set the counts of hits and misses to 0.");
    m.def("set_kept_code_limit", &set_kept_code_limit, "limit"_a,
          R"(Limit the number of convolutions that are compiled to code that oneDNN never frees.

Beyond the limit, element-wise followers of a convolution run in kernels of their own, if
oneDNN has fast ones for them.)");
    m.def("set_cache_capacity", &set_cache_capacity, "capacity"_a, WithoutLock(),
          R"(Set how many primitives the cache holds, those used last; 0: none.

Primitives that a step holds are found all the same; those whose code oneDNN never frees
stay.)");
}

}  // namespace

void bind_primitives(nb::module_ &m) {
    bind_primitive(m);
    bind_planes(m);
    bind_windows(m);
    bind_products(m);
    bind_pointwise(m);
    bind_norms(m);
    bind_cache(m);
}

}  // namespace vtensor::onednn
