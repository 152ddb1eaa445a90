// native/eigen/gates.cpp: the activations of recurrent networks, and the gates of an LSTM.
//
// No product is added to without being rounded first, so that all instruction sets give equal bits.
#include "gates.h"

#include <cmath>

#include "check.h"
#include "exponential.h"

namespace vtensor::eigen {

namespace {

template <auto kFunction>
void each_in_place(float *x, Index n, float alpha, float beta) {
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) x[i] = kFunction(x[i], alpha, beta);
}

VTENSOR_INLINE float bounded(float x, float low, float high) {
    const float above = x < low ? low : x;
    return high < above ? high : above;
}

// The logistic function and the hyperbolic tangent of exponential.h, by an exponential that is 0
// where it is below 2^-125: less than the last bit of any state.
VTENSOR_INLINE float sigmoid(float x) {
    const float e = exp_weight(-std::fabs(x));
    return (x < 0 ? e : 1.0F) / (1.0F + e);
}
VTENSOR_INLINE float bent(float x) {
    const float t = std::fabs(x), e = exp_weight(-2 * t);
    return std::copysign(t > 0.625F ? 1.0F - 2.0F * e / (1.0F + e) : tanh_near(t), x);
}

struct Named {
    const char *name;
    decltype(Applied::function) function;
};

constexpr Named kFunctions[] = {
    {"affine", each_in_place<[](float x, float a, float b) { return a * x + b; }>},
    {"elu",
     each_in_place<[](float x, float a, float) { return x >= 0 ? x : a * std::expm1(x); }>},
    {"hardsigmoid",
     each_in_place<[](float x, float a, float b) { return bounded(a * x + b, 0, 1); }>},
    {"leakyrelu", each_in_place<[](float x, float a, float) { return x >= 0 ? x : a * x; }>},
    {"relu", each_in_place<[](float x, float, float) { return x < 0 ? 0 : x; }>},
    {"scaledtanh", each_in_place<[](float x, float a, float b) { return a * bent(b * x); }>},
    {"sigmoid", each_in_place<[](float x, float, float) { return sigmoid(x); }>},
    {"softplus",
     each_in_place<[](float x, float, float) {
         return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x)));
     }>},
    {"softsign", each_in_place<[](float x, float, float) { return x / (1 + std::fabs(x)); }>},
    {"tanh", each_in_place<[](float x, float, float) { return bent(x); }>},
    {"thresholdedrelu", each_in_place<[](float x, float a, float) { return a < x ? x : 0; }>},
};

}  // namespace

Applied applied(const Activation &activation) {
    for (const Named &one : kFunctions)
        if (activation.name == one.name) return {one.function, activation.alpha, activation.beta};
    refuse("there is no function " + activation.name);
}

void Cell::add_bias(float *sum, Index row, Index begin, Index end) const {
    if (bias == nullptr) return;
    const float *by = bias + row * units;
#pragma GCC ivdep
    for (Index u = begin; u < end; ++u) sum[u] += by[u];
}

void Cell::apply(Index which, float *x, Index n) const {
    const Applied &one = functions[which];
    if (limited) {
#pragma GCC ivdep
        for (Index i = 0; i < n; ++i) x[i] = bounded(x[i], -clip, clip);
    }
    one.function(x, n, one.alpha, one.beta);
}

void Cell::remember(float *gates, Index begin, Index end, float *cell, float *hidden) const {
    float *in = gates, *kept = gates + units, *made = gates + 2 * units, *out = gates + 3 * units;
    const auto open = [&](float *gate, Index row, Index peephole) {
        add_bias(gate, row, begin, end);
        if (peepholes != nullptr) {
            const float *by = peepholes + peephole * units;
#pragma GCC ivdep
            for (Index u = begin; u < end; ++u) gate[u] += by[u] * cell[u];
        }
        apply(0, gate + begin, end - begin);
    };
    open(in, 0, 0);
    if (!coupled) open(kept, 1, 1);
    add_bias(made, 2, begin, end);
    apply(1, made + begin, end - begin);
#pragma GCC ivdep
    for (Index u = begin; u < end; ++u)
        cell[u] = (coupled ? 1 - in[u] : kept[u]) * cell[u] + in[u] * made[u];
    open(out, 3, 2);
    std::copy(cell + begin, cell + end, made + begin);
    apply(2, made + begin, end - begin);
#pragma GCC ivdep
    for (Index u = begin; u < end; ++u) hidden[u] = out[u] * made[u];
}

}  // namespace vtensor::eigen
