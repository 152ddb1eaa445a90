// native/replay/runner.h: checking steps and buffers, and running a step. No Python in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "vtensor/step.h"

namespace vtensor::replay {

// A step's function said no, or threw; the text is its own.
struct StepFailed {
    std::string message;
    std::size_t index = 0;  // in its program
};

// A run ends between two steps, or never begins.
struct Stopped : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Memory offered for a slot, or for a region.
struct Memory {
    void *address;
    std::size_t bytes;
};

// Where a slot lies: bytes from the beginning of a region.
struct Place {
    std::size_t region;
    std::uintptr_t offset;
};

// The place in a region that is all memory.
Place absolute(const void *address);

bool overlap(const Place &a, std::size_t a_bytes, const Place &b, std::size_t b_bytes);

// More threads than any machine has use for; libgomp ends the process when it cannot start one.
inline constexpr int kMaxThreads = 1024;

// Throws std::invalid_argument unless the step is well formed and of our ABI version.
void check_step(const vtensor_step &step);

// One owner of a step, which outlives its capsule.
struct Release {
    void operator()(const vtensor_step *step) const;
};
using OwnedStep = std::unique_ptr<const vtensor_step, Release>;
OwnedStep own(const vtensor_step &step);

// Throws std::invalid_argument unless the step has that many slots.
void check_slot_count(const vtensor_step &step, std::size_t given);

// Throws std::invalid_argument unless the slot may start at that offset.
void check_alignment(const vtensor_step &step, std::size_t slot, std::uintptr_t offset);

// Throws std::invalid_argument if scratch overlaps another slot; one place a slot.
void check_scratch(const vtensor_step &step, std::span<const Place> places);

// Throws std::invalid_argument unless 1 <= threads <= kMaxThreads.
void check_threads(int threads);

// "slot 2 (dst)".
std::string slot_label(const vtensor_step &step, std::size_t index);

// Runs the step on checked addresses; throws StepFailed, and nothing else.
void run_step(const vtensor_step &step, void *const *addresses);

// Checks the memory, one for each slot (std::invalid_argument), and runs the step with that many
// OpenMP threads (0: as the calling thread has).
void run_once(const vtensor_step &step, std::span<const Memory> memory, int threads);

}  // namespace vtensor::replay
