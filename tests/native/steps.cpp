// tests/native/steps.cpp: steps that break step.h's promise to let no exception out.
#include "vtensor/step.h"

#include <stdexcept>

namespace {

int throw_error(void *, void *const *, char *, size_t) { throw std::runtime_error("thrown"); }
int throw_number(void *, void *const *, char *, size_t) { throw 3; }

}  // namespace

extern "C" {
vtensor_step throws_error = {
    VTENSOR_STEP_ABI, 0, nullptr, "throwing", nullptr, throw_error, nullptr, nullptr};
vtensor_step throws_number = {
    VTENSOR_STEP_ABI, 0, nullptr, "throwing", nullptr, throw_number, nullptr, nullptr};
}
