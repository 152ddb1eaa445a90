// native/eigen/step.cpp: the C functions and the slots of a step.
#include "step.h"

#include <cstdio>
#include <exception>

#include "check.h"

namespace vtensor::eigen {

namespace {

constexpr std::uint32_t kCacheLine = 64;

}  // namespace

Step::Step(const std::string &kernel) : kernel_(VTENSOR_KERNELS ":" + kernel) {
    step_.abi = VTENSOR_STEP_ABI;
    step_.struct_bytes = sizeof step_;
    step_.kernel = kernel_.c_str();
    step_.context = this;
    step_.run = &run_step;
    step_.retain = [](void *context) { static_cast<Step *>(context)->retain(); };
    step_.release = [](void *context) { static_cast<Step *>(context)->release(); };
}

void Step::add_slot(const char *name, std::uint32_t access, Index elements,
                    std::uint32_t item_bytes) {
    add(name, access, times(elements, item_bytes), item_bytes);
}

void Step::add_scratch(Index elements) {
    if (elements == 0) return;
    add("scratch", VTENSOR_SCRATCH, times(elements, sizeof(float)), kCacheLine);
    scratch_bytes_ = slots_.back().bytes;
}

void Step::add(const char *name, std::uint32_t access, Index bytes, std::uint32_t alignment) {
    demand(bytes >= 0, "a size is negative");
    slots_.push_back({.bytes = static_cast<std::size_t>(bytes),
                      .access = access,
                      .alignment = alignment,
                      .name = name,
                      .planes = 1,
                      .further_bytes = nullptr});
    step_.slots = slots_.data();
    step_.slot_count = static_cast<std::uint32_t>(slots_.size());
}

int Step::run_step(void *context, void *const *slots, const vtensor_run *run) {
    try {
        static_cast<const Step *>(context)->run(slots);
        return 0;
    } catch (const BadInput &wrong) {
        std::snprintf(run->error, run->error_bytes, "%s", wrong.what());
        return VTENSOR_BAD_INPUT;
    } catch (const std::exception &failure) {
        std::snprintf(run->error, run->error_bytes, "%s", failure.what());
    } catch (...) {
        std::snprintf(run->error, run->error_bytes, "unknown failure");
    }
    return VTENSOR_FAILED;
}

}  // namespace vtensor::eigen
