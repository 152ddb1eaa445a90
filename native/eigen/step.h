// native/eigen/step.h: what every kernel here and in winograd/ is: a step of vtensor/step.h on dense elements.
//
// A kernel derives the bytes of its slots from its own geometry; the runner sees to it that the
// memory has them, so no run leaves its buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "vtensor/step.h"

namespace vtensor::eigen {

using Index = std::int64_t;
using Ints = std::vector<Index>;

// What a kernel throws where its operands hold what it cannot work with; the text says what.
struct BadInput : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Lives as long as its last owner: Python's object, capsules, plans. Knows no Python.
class Step {
public:
    Step(const Step &) = delete;
    Step &operator=(const Step &) = delete;

    const vtensor_step *step() const { return &step_; }
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    const std::string &kernel() const { return kernel_; }
    void retain() { owners_.fetch_add(1, std::memory_order_relaxed); }
    void release() {
        if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

protected:
    // The first owner is the caller.
    explicit Step(const std::string &kernel);
    virtual ~Step() = default;

    // Slots in their order. Scratch, f32 as most is, comes last and begins at a cache line.
    void add_slot(const char *name, std::uint32_t access, Index elements,
                  std::uint32_t item_bytes = sizeof(float));
    void add_scratch(Index elements);

private:
    // Called by any number of threads at once, on different memory.
    virtual void run(void *const *slots) const = 0;
    static int run_step(void *context, void *const *slots, const vtensor_run *run);
    void add(const char *name, std::uint32_t access, Index bytes, std::uint32_t alignment);

    std::string kernel_;
    std::vector<vtensor_slot> slots_;
    std::size_t scratch_bytes_ = 0;
    vtensor_step step_{};
    std::atomic<std::size_t> owners_{1};
};

inline const float *input(void *const *slots, std::size_t index) {
    return static_cast<const float *>(slots[index]);
}
inline float *output(void *const *slots, std::size_t index) {
    return static_cast<float *>(slots[index]);
}

}  // namespace vtensor::eigen
