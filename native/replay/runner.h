// native/replay/runner.h: checking steps and buffers, and running a step. No Python in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "vtensor/step.h"

namespace vtensor::replay {

// A step returned a failure or threw; the text is the step's own.
struct StepFailed {
    std::string message;
    bool bad_input = false;  // whether its operands are at fault, not the kernel
    std::size_t index = 0;   // in its program
};

// A job can never begin: its thread waits for its caller.
struct Circular : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The system does not let this process start the threads of a team.
struct NoThreads : std::runtime_error {
    NoThreads(int started, int needed)
        : std::runtime_error("of " + std::to_string(needed) +
                             " threads that it may need, the system lets this process start " +
                             std::to_string(started)) {}
};

// A run was stopped between two steps, or before the first.
struct Stopped : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Memory offered for a plane of a slot, or for a region.
struct Memory {
    void *address;
    std::size_t bytes;
};

// The place of a plane: bytes from the beginning of a region.
struct Place {
    std::size_t region;
    std::uintptr_t offset;
};

// Returns an address as a place in a region that is all memory, to compare addresses by overlap().
Place absolute(const void *address);

bool overlap(const Place &a, std::size_t a_bytes, const Place &b, std::size_t b_bytes);

// The most threads of a team, more than any machine has use for: libgomp ends the process if it
// cannot start one.
inline constexpr int kMaxThreads = 1024;

// The memory, sizes and queue of one run. The queue is that of the device for steps that do not run
// on the CPU; null if there is none.
struct Given {
    std::span<const Memory> memory;
    std::span<const std::int64_t> sizes;
    void *queue = nullptr;
};

// One of a step's addresses, and the most bytes that it needs.
struct Plane {
    std::size_t slot;
    std::size_t number;  // in its slot
    std::size_t bytes;
};

// Throws std::invalid_argument unless the step is well formed and of this ABI version.
void check_step(const vtensor_step &step);

// The deleter of an owner of a step; the step may outlive its capsule.
struct Release {
    void operator()(const vtensor_step *step) const;
};
using OwnedStep = std::unique_ptr<const vtensor_step, Release>;
OwnedStep own(const vtensor_step &step);

// Returns a step's planes in the order of its addresses.
std::vector<Plane> planes_of(const vtensor_step &step);

// Returns the bytes of each plane for these sizes. Throws std::invalid_argument if the step does
// not take them, or needs more than its slots say.
std::vector<std::size_t> bytes_for(const vtensor_step &step, std::span<const std::int64_t> sizes);

// Throws std::invalid_argument unless the step has that many planes.
void check_plane_count(const vtensor_step &step, std::size_t given);

// Throws std::invalid_argument unless the step takes that many sizes.
void check_size_count(const vtensor_step &step, std::size_t given);

// Throws std::invalid_argument unless the plane may start at that offset.
void check_alignment(const vtensor_step &step, const Plane &plane, std::uintptr_t offset);

// Throws std::invalid_argument if scratch overlaps another plane; places, bytes: of each plane.
void check_scratch(const vtensor_step &step, std::span<const Place> places,
                   std::span<const std::size_t> bytes);

// Throws std::invalid_argument if the step is for a device's queue, and there is none.
void check_queue(const vtensor_step &step, const void *queue);

// Throws std::invalid_argument unless 1 <= threads <= kMaxThreads.
void check_threads(int threads);

// Returns "slot 2 (dst)".
std::string slot_label(const vtensor_step &step, std::size_t index);
// Returns "slot 2 (dst)", or "slot 2 (dst), plane 1" if the slot has several.
std::string plane_label(const vtensor_step &step, const Plane &plane);

// Runs the steps of one run, one after the other.
class Runner {
public:
    // doubt: where steps may add doubts (see vtensor_run.doubt); may be null.
    explicit Runner(void *queue, std::uint32_t *doubt = nullptr) : queue_(queue) {
        told_.doubt = doubt;
    }
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;

    // Runs a step on checked addresses, and sizes if it has any. Throws StepFailed only.
    void run(const vtensor_step &step, void *const *addresses, const std::int64_t *sizes);

private:
    void *queue_;
    char error_[512];
    vtensor_run told_{sizeof(vtensor_run), nullptr, nullptr, error_, sizeof error_, nullptr};
};

// Checks the memory for each plane (std::invalid_argument), and runs the step with this many OpenMP
// threads (0: as many as the calling thread has set).
void run_once(const vtensor_step &step, const Given &given, int threads);

}  // namespace vtensor::replay
