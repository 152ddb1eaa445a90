// native/eigen/step.h: the base class of the kernels here and in winograd/: a step of
// vtensor/step.h on dense elements.
//
// A kernel derives the bytes of its slots from its own geometry; the runner checks that the memory
// has them, so that no run leaves its buffers.
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

// A kernel found operands that it cannot work with; the text says what.
struct BadInput : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A step. Its owners are a Python object, capsules and plans; it calls no Python itself.
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
    // The caller is the first owner.
    explicit Step(const std::string &kernel);
    virtual ~Step() = default;

    // Adds a slot, in order. Scratch, f32 in most kernels, comes last and is aligned to a cache
    // line.
    void add_slot(const char *name, std::uint32_t access, Index elements,
                  std::uint32_t item_bytes = sizeof(float));
    void add_scratch(Index elements);

private:
    // Runs the step; may be called by any number of threads at once, on different memory.
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
