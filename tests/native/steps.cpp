// tests/native/steps.cpp: steps that break step.h's promise to let no exception out.
#include "vtensor/step.h"

#include <algorithm>
#include <stdexcept>

namespace {

int throw_error(void *, void *const *, const vtensor_run *) { throw std::runtime_error("thrown"); }
int throw_number(void *, void *const *, const vtensor_run *) { throw 3; }

// dst = src, unless that begins with a negative number.
int throw_negative(void *, void *const *slots, const vtensor_run *) {
    const float *src = static_cast<const float *>(slots[0]);
    if (src[0] < 0) throw std::runtime_error("thrown at a negative number");
    std::copy_n(src, 4, static_cast<float *>(slots[1]));
    return 0;
}
const vtensor_slot copy_slots[] = {
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "src", 1, nullptr},
    {4 * sizeof(float), VTENSOR_WRITE, sizeof(float), "dst", 1, nullptr},
};

int throw_sizes(void *, const int64_t *, size_t *, char *, size_t) {
    throw std::runtime_error("thrown at sizes");
}

vtensor_step throwing(decltype(vtensor_step::run) run) {
    vtensor_step step{};
    step.abi = VTENSOR_STEP_ABI;
    step.struct_bytes = sizeof step;
    step.kernel = "throwing";
    step.run = run;
    return step;
}

vtensor_step throwing_at_negative() {
    vtensor_step step = throwing(throw_negative);
    step.slots = copy_slots;
    step.slot_count = 2;
    return step;
}

vtensor_step throwing_at_sizes() {
    vtensor_step step = throwing(throw_negative);
    step.size_count = 1;
    step.bytes_for = throw_sizes;
    return step;
}

}  // namespace

extern "C" {
vtensor_step throws_error = throwing(throw_error);
vtensor_step throws_number = throwing(throw_number);
vtensor_step throws_at_negative = throwing_at_negative();
vtensor_step throws_at_sizes = throwing_at_sizes();
}
