// tests/native/steps.cpp: steps that break step.h's promise to let no exception out.
#include "vtensor/step.h"

#include <algorithm>
#include <stdexcept>

namespace {

int throw_error(void *, void *const *, char *, size_t) { throw std::runtime_error("thrown"); }
int throw_number(void *, void *const *, char *, size_t) { throw 3; }

// dst = src, unless that begins with a negative number.
int throw_negative(void *, void *const *slots, char *, size_t) {
    const float *src = static_cast<const float *>(slots[0]);
    if (src[0] < 0) throw std::runtime_error("thrown at a negative number");
    std::copy_n(src, 4, static_cast<float *>(slots[1]));
    return 0;
}
const vtensor_slot copy_slots[] = {
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "src"},
    {4 * sizeof(float), VTENSOR_WRITE, sizeof(float), "dst"},
};

}  // namespace

extern "C" {
vtensor_step throws_error = {
    VTENSOR_STEP_ABI, 0, nullptr, "throwing", nullptr, throw_error, nullptr, nullptr};
vtensor_step throws_number = {
    VTENSOR_STEP_ABI, 0, nullptr, "throwing", nullptr, throw_number, nullptr, nullptr};
vtensor_step throws_at_negative = {
    VTENSOR_STEP_ABI, 2, copy_slots, "throwing", nullptr, throw_negative, nullptr, nullptr};
}
