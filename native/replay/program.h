// native/replay/program.h: recorded steps on regions of memory: checked once, run in one loop. No
// Python in here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "arena.h"
#include "runner.h"
#include "stop.h"
#include "turn.h"

namespace vtensor::replay {

// The source of a region: memory that no step writes, the pages that an arena has when a run
// starts, or bytes that each run binds.
using Source = std::variant<Memory, std::shared_ptr<Arena>, std::size_t>;

// A call-back in place of a step, without slots; its exception ends the run.
using Callback = std::function<void()>;

struct RecordedStep {
    std::variant<OwnedStep, Callback> action;
    std::vector<Place> places;       // one per plane
    std::vector<std::size_t> sizes;  // indices of its sizes among the run's
};

class Program {
public:
    // Each run takes `size_count` sizes. Throws std::invalid_argument unless each step has a place
    // for each plane, inside of its region and aligned in it, writes no constant, has scratch that
    // overlaps nothing, and has as many sizes as it takes; or if steps are for several devices.
    // `repeatable`: a run changes nothing that it reads, so that it may be made twice.
    Program(std::vector<Source> sources, std::vector<RecordedStep> steps, std::size_t size_count,
            bool repeatable);

    std::size_t step_count() const { return steps_.size(); }
    // The indices of the regions that a run binds, in the order of its bindings.
    const std::vector<std::size_t> &bound() const { return bound_; }
    bool is_written(std::size_t region) const { return regions_[region].written; }

    // Runs all steps, with memory for each region that a run binds. `times`, if not null, gets
    // begin and end of each step, in nanoseconds of the steady clock. Throws std::invalid_argument
    // if a binding is missing, too small, misaligned, or memory that is written overlaps another
    // region, if a step does not take its sizes, or a queue is missing; Busy if the program is
    // running already, or another run has an arena; StepFailed with the step's index; and what
    // `stop` or a call-back throws.
    void run(const Given &given, Stop &stop, std::int64_t *times);

private:
    struct Region {
        Source source;
        std::size_t bytes;
        std::uint32_t alignment = 1;
        bool written = false;
        bool sized = false;      // whether steps' needs depend on the run's sizes
        std::size_t fixed = 0;   // bytes needed by steps without sizes
        std::size_t needed = 0;  // bytes needed in the last run
        void *base = nullptr;    // in the last run
    };

    // Checks a step, and records what it needs of its regions.
    void take(const RecordedStep &step);
    void take_place(const vtensor_step &step, const Plane &plane, const Place &place);
    // Fills the table of sizes and finds what steps need, if a size differs from the last run.
    void resize(std::span<const std::int64_t> sizes);
    void resize(const RecordedStep &step, std::span<std::int64_t> own);  // own: its sizes
    void check_bindings(std::span<const Memory> bindings) const;
    // Fills the table of addresses, if a base differs from the last run.
    void settle(std::span<const Memory> bindings, std::span<const Lease> leases);
    // Throws unless every region is aligned and overlaps no region that is written. Sorts by_base_.
    void check_bases();
    // Runs the steps, with doubts if these have been useful: see vtensor_run.doubt.
    void run_steps(void *queue, Stop &stop, std::int64_t *times);
    void run_once(Runner &runner, Stop &stop, std::int64_t *times) const;

    std::vector<Region> regions_;
    std::vector<RecordedStep> steps_;
    std::vector<std::size_t> bound_;
    std::vector<std::size_t> by_base_;  // all regions, by the addresses of the last check
    std::vector<void *> table_;  // the addresses of all planes, step after step
    bool settled_ = false;
    std::vector<std::int64_t> sizes_;       // of the last run
    std::vector<std::int64_t> size_table_;  // the sizes of each step, step after step
    bool resized_ = false;
    const vtensor_step *queued_ = nullptr;  // a step for a device, if there is one
    Holder running_ = 0;
    Arena *arena_ = nullptr;  // the first, if there is one
    Caution caution_;         // if there is no arena
    bool ran_ = false;
    bool repeatable_;
};

}  // namespace vtensor::replay
