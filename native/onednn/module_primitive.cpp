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
#include "rectify.h"
#include "vtensor/interpreter.h"

using namespace nanobind::literals;

namespace vtensor::onednn {

namespace {

using WithoutLock = nb::call_guard<Unlocked>;

MaybeDesc maybe(const Desc *desc) { return desc == nullptr ? MaybeDesc() : MaybeDesc(*desc); }
Attr or_plain(const Attr *attr) { return attr == nullptr ? Attr() : *attr; }

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

nb::object step_capsule(Primitive &primitive) {
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
    nb::class_<Primitive>(m, "Primitive", nb::is_final(), R"(A kernel of oneDNN.

Compiled at the first ``__vtensor_step__``. It runs with ``threads`` OpenMP threads, the number
of the thread that asked for it, whichever thread runs it.)")
        .def_prop_ro("kind", &Primitive::kind)
        .def_prop_ro("kernel", &Primitive::kernel,
                     "oneDNN's name of the implementation, as in \"jit:avx512_core\".")
        .def_prop_ro("scratch_bytes", &Primitive::scratch_bytes)
        .def_prop_ro("threads", &Primitive::threads)
        .def_prop_ro("descs", &descs, nb::sig("def descs(self) -> dict[str, Desc]"),
                     "By argument name, \"any\" replaced by what was chosen; scratch is not in it.")
        .def_prop_ro("slots", &slots, nb::sig("def slots(self) -> tuple[str, ...]"),
                     "Argument names in the order of the step; \"scratch\", if any, is last.")
        .def("next_kernel", &Primitive::next_kernel, WithoutLock(),
             nb::sig("def next_kernel(self) -> Primitive | None"),
             "Return the next implementation that oneDNN offers for the same request, or None.")
        .def("__vtensor_step__", &step_capsule,
             "Return a capsule with a step of native/include/vtensor/step.h.")
        .def("compiling", &compiling_capsule,
             "Return a capsule with a step without memory that compiles this one, on any thread.")
        .def("__repr__", [](const Primitive &p) {
            return "Primitive(" + p.kind() + ", " + p.kernel() + ")";
        });
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
        R"(Convolution over 1 to 3 spatial dims; arguments src, weights, bias, dst.

src N C ..., weights O I ... or G O I ... (O and I of one group), bias O, dst N O ...; one
number for each spatial dim, dilations as in ONNX (1 is dense). Any form may be "any".)");
    m.def(
        "deconvolution",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst, Ints strides,
           Ints dilations, Ints begin, Ints end, const Attr *attr) {
            return deconvolution(src, weights, maybe(bias), dst,
                                 {{}, strides, dilations, begin, end}, or_plain(attr));
        },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "strides"_a, "dilations"_a,
        "pads_begin"_a, "pads_end"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Transposed convolution over 1 to 3 spatial dims; arguments src, weights, bias, dst.

As convolution, each element spread over a window of dst; pads are cut off, and an end pad
below 0, by less than a stride, adds. Any form may be "any".)");
    m.def(
        "resampling",
        [](const std::string &alg, const Desc &src, const Desc &dst, const Attr *attr) {
            return resampling(alg, src, dst, or_plain(attr));
        },
        "alg"_a, "src"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(src at dst's sizes along 1 to 3 spatial dims; arguments src, dst.

``alg``: "nearest" or "linear". Element y of dst is at (y + 0.5) * src size / dst size - 0.5.
dst may be "any".)");
    m.def(
        "pooling",
        [](const std::string &kind, const Desc &src, const Desc &dst, Ints kernel, Ints strides,
           Ints dilations, Ints begin, Ints end, const Attr *attr) {
            return pooling(kind, src, dst, {kernel, strides, dilations, begin, end},
                           or_plain(attr));
        },
        "kind"_a, "src"_a, "dst"_a, "kernel"_a, "strides"_a, "dilations"_a, "pads_begin"_a,
        "pads_end"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(Pooling over 1 to 3 spatial dims; arguments src, dst.

``kind``: "max", "avg_include_padding", "avg_exclude_padding". dst may be "any".)");
}

void bind_products(nb::module_ &m) {
    m.def(
        "matmul",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst,
           const Attr *attr) { return matmul(src, weights, maybe(bias), dst, or_plain(attr)); },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(src (... M K) times weights (... K N) plus bias; arguments src, weights, bias, dst.

Equal ranks of at least 2; leading dims of 1 stretch; bias stretches to dst.
Any form may be "any".)");
    m.def(
        "inner_product",
        [](const Desc &src, const Desc &weights, const Desc *bias, const Desc &dst,
           const Attr *attr) {
            return inner_product(src, weights, maybe(bias), dst, or_plain(attr));
        },
        "src"_a, "weights"_a, "bias"_a.none(), "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        R"(src (N C ...) times weights (O C ...), summed over C ..., plus bias.

dst is N O, bias O. Arguments src, weights, bias, dst. Any form may be "any".)");
}

void bind_pointwise(nb::module_ &m) {
    m.def(
        "eltwise",
        [](const std::string &alg, const Desc &src, const Desc &dst, double alpha, double beta,
           const Attr *attr) { return eltwise(alg, src, dst, alpha, beta, or_plain(attr)); },
        "alg"_a, "src"_a, "dst"_a, "alpha"_a = 0.0, "beta"_a = 0.0, "attr"_a = nb::none(),
        WithoutLock(),
        "alg (of eltwise_algs()) on each element; arguments src, dst, which may be one memory.");
    m.def(
        "binary",
        [](const std::string &alg, const Desc &src0, const Desc &src1, const Desc &dst,
           const Attr *attr) { return binary(alg, src0, src1, dst, or_plain(attr)); },
        "alg"_a, "src0"_a, "src1"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        "alg (of binary_algs()) on each pair; dims of 1 stretch; arguments src0, src1, dst.");
    m.def(
        "prelu",
        [](const Desc &src, const Desc &weights, const Desc &dst, const Attr *attr) {
            return prelu(src, weights, dst, or_plain(attr));
        },
        "src"_a, "weights"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        "src, times weights where below 0; weights stretch; arguments src, weights, dst.");
    m.def(
        "concat",
        [](int axis, const std::vector<Desc> &srcs, const Desc *dst, const Attr *attr) {
            return concat(axis, srcs, maybe(dst), or_plain(attr));
        },
        "axis"_a, "srcs"_a, "dst"_a = nb::none(), "attr"_a = nb::none(), WithoutLock(),
        "Joins along a dim; arguments src0, src1, ..., dst. No dst: oneDNN chooses its form.");
    m.def(
        "reorder",
        [](const Desc &src, const Desc &dst, const Attr *attr) {
            return reorder(src, dst, or_plain(attr));
        },
        "src"_a, "dst"_a, "attr"_a = nb::none(), WithoutLock(),
        "Copies to another form or type (rounding to even, saturating); arguments src, dst.");
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
        R"((src - mean) / sqrt(variance + epsilon) * scale + shift for each channel (dim 1).

Arguments src, mean, variance, scale, shift, dst; the middle ones are C elements of f32.)");
    m.def(
        "layer_normalization",
        [](const Desc &src, const Desc &stat, const Desc &dst, double epsilon, bool scale,
           bool shift, const Attr *attr) {
            return layer_normalization(src, stat, dst, epsilon, scale, shift, or_plain(attr));
        },
        "src"_a, "stat"_a, "dst"_a, "epsilon"_a, "scale"_a = true, "shift"_a = true,
        "attr"_a = nb::none(), WithoutLock(),
        R"((src - mean) / sqrt(variance + epsilon) * scale + shift over the last dim.

Arguments src, scale, shift, mean, variance, dst; mean and variance are results in the form of
``stat``, which has src's dims but the last; scale and shift are vectors of f32.)");
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
        R"(Return a recurrent network of f32 with the given arguments.

``kind``: "vanilla_rnn" (with ``activation`` "relu", of slope ``alpha``, "tanh" or "logistic"),
"lstm" (gates i f c o), "gru" (u r o) or "lbr_gru", reset behind the product. ``direction``:
"forward", "reverse" or "bidirectional". Dims: src_layer T N C, weights 1 D I G O, bias 1 D G O,
weights_peephole 1 D 3 O, states 1 D N O, dst_layer T N D*O. Weights may be "any".)");
    m.def(
        "softmax",
        [](const Desc &src, const Desc &dst, int axis, bool log, const Attr *attr) {
            return softmax(src, dst, axis, log, or_plain(attr));
        },
        "src"_a, "dst"_a, "axis"_a, "log"_a = false, "attr"_a = nb::none(), WithoutLock(),
        "Softmax along a dim (0 to rank - 1), or its logarithm; arguments src, dst.");
    m.def(
        "lrn",
        [](const std::string &alg, const Desc &src, const Desc &dst, dnnl_dim_t size,
           double alpha, double beta, double k, const Attr *attr) {
            return lrn(alg, src, dst, size, alpha, beta, k, or_plain(attr));
        },
        "alg"_a, "src"_a, "dst"_a, "size"_a, "alpha"_a, "beta"_a, "k"_a, "attr"_a = nb::none(),
        WithoutLock(),
        R"(src * (k + alpha / n * sum of squares over a window of n elements) ** -beta.

``alg``: "across_channels" (n is size) or "within_channel" (n is size to the power of the number
of spatial dims); an odd size. Arguments src, dst.)");
    m.def(
        "reduction",
        [](const std::string &alg, const Desc &src, const Desc &dst, double p, double eps,
           const Attr *attr) { return reduction(alg, src, dst, p, eps, or_plain(attr)); },
        "alg"_a, "src"_a, "dst"_a, "p"_a = 0.0, "eps"_a = 0.0, "attr"_a = nb::none(), WithoutLock(),
        R"(alg (of reduction_algs()) over the dims where dst has 1 and src more; arguments src, dst.

``p`` (at least 1) and ``eps`` are those of the norms.)");
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
        R"(Return what Attr.bounds and Attr.gelu have cost so far; ordinary numbers cost nothing.

``searches``: results that were searched for a NaN since a flag of the processor said that there
may be one; ``repeats``: runs that were made again, without what they end in.)");
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
        "Return hits, misses, size and capacity of the cache of equal primitives.");
    m.def("cache_let_go", &cache_let_go, WithoutLock(),
          R"(Stop holding the primitives that the calling thread has made since its last call.

Those that a step holds, that were used last, or whose code oneDNN never frees stay.)");
    m.def("cache_clear", &cache_clear, WithoutLock(), "Forget all primitives and both counts.");
    m.def("set_kept_code_limit", &set_kept_code_limit, "limit"_a,
          R"(Limit the convolutions that are compiled to code that oneDNN never frees.

Beyond the limit a function of one element runs in a kernel of its own if oneDNN has one.)");
    m.def("set_cache_capacity", &set_cache_capacity, "capacity"_a, WithoutLock(),
          R"(Hold at most ``capacity`` primitives, those used last; 0 holds none.

Primitives that a step holds are found all the same; those whose code oneDNN never frees stay.)");
}

}  // namespace

void bind_primitives(nb::module_ &m) {
    bind_primitive(m);
    bind_windows(m);
    bind_products(m);
    bind_pointwise(m);
    bind_norms(m);
    bind_cache(m);
}

}  // namespace vtensor::onednn
