// native/winograd/operands.h: the operands of every kernel of winograd/.
#pragma once

#include <string>

#include "eigen/step.h"

namespace vtensor::winograd {

// Addresses of the operands; null for a missing one.
struct Operands {
    const float *src, *weights, *bias, *other;
    float *dst, *scratch;
};

// A step with the slots src, weights, bias and other if there are any, dst, and scratch if needed.
class Convolving : public eigen::Step {
protected:
    template <class Call>
    Convolving(const std::string &kernel, const Call &call)
        : Step(kernel), bias_(call.bias), other_(call.other) {}

    // Adds the slots, by the number of elements of each; scratch is added after them.
    void add_operands(eigen::Index src, eigen::Index weights, eigen::Index outputs,
                      eigen::Index dst) {
        add_slot("src", VTENSOR_READ, src);
        add_slot("weights", VTENSOR_READ, weights);
        if (bias_) add_slot("bias", VTENSOR_READ, outputs);
        if (other_) add_slot("other", VTENSOR_READ, dst);
        add_slot("dst", VTENSOR_WRITE, dst);
    }

private:
    virtual void compute(const Operands &at) const = 0;

    void run(void *const *slots) const final {
        const auto next = [&] { return static_cast<float *>(*slots++); };
        Operands at{};
        at.src = next();
        at.weights = next();
        if (bias_) at.bias = next();
        if (other_) at.other = next();
        at.dst = next();
        if (scratch_bytes() > 0) at.scratch = next();
        compute(at);
    }

    bool bias_, other_;
};

}  // namespace vtensor::winograd
