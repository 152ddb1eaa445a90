// native/replay/runner.h: checking steps and buffers, and running a step. No Python in here.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "vtensor/step.h"

namespace vtensor::replay {

// A step's function said no; the text is its own.
struct StepFailed {
    std::string message;
};

// Memory offered for a slot.
struct Memory {
    void *address;
    std::size_t bytes;
};

// More threads than any machine has use for; libgomp ends the process when it cannot start one.
inline constexpr int kMaxThreads = 1024;

// Throws std::invalid_argument unless the step is well formed and of our ABI version.
void check_step(const vtensor_step &step);

// Throws std::invalid_argument unless there is one memory for each slot, large enough and aligned,
// and scratch overlaps nothing.
void check_memory(const vtensor_step &step, std::span<const Memory> memory);

// Throws std::invalid_argument unless 1 <= threads <= kMaxThreads.
void check_threads(int threads);

// "slot 2 (dst)".
std::string slot_label(const vtensor_step &step, std::size_t index);

// Runs the step on checked memory, with that many OpenMP threads (0: as the calling thread has);
// throws StepFailed.
void run_step(const vtensor_step &step, std::span<const Memory> memory, int threads);

}  // namespace vtensor::replay
