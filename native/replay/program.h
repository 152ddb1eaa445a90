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

// What a region is: memory that no step writes, the pages that an arena has when a run starts, or
// that many bytes, bound by each run.
using Source = std::variant<Memory, std::shared_ptr<Arena>, std::size_t>;

// In place of a step, without slots; what it throws ends the run.
using Callback = std::function<void()>;

struct RecordedStep {
    std::variant<OwnedStep, Callback> action;
    std::vector<Place> places;       // one a plane
    std::vector<std::size_t> sizes;  // which of the run's it takes
};

class Program {
public:
    // A run is given so many sizes. Throws std::invalid_argument unless each step has a place for
    // each plane, inside of its region and aligned in it, writes no constant, has scratch that
    // overlaps nothing, and has as many sizes as it takes; or if steps are for several devices.
    // `repeatable`: a run changes nothing that it reads, so that it may be made twice.
    Program(std::vector<Source> sources, std::vector<RecordedStep> steps, std::size_t size_count,
            bool repeatable);

    std::size_t step_count() const { return steps_.size(); }
    // The regions that a run binds, in the order of their bindings.
    const std::vector<std::size_t> &bound() const { return bound_; }
    bool is_written(std::size_t region) const { return regions_[region].written; }

    // Runs all steps, with memory for each region that a run binds; where `times` is not null, it
    // gets the begin and the end of each, in nanoseconds of the steady clock. Throws
    // std::invalid_argument if a binding is missing, too small, misaligned, or memory that is
    // written overlaps another region, if a step does not take its sizes, or a queue is missing;
    // Busy if the program is running already, or another run has an arena; StepFailed with the
    // step's index; what `stop` throws; what a callback throws.
    void run(const Given &given, Stop &stop, std::int64_t *times);

private:
    struct Region {
        Source source;
        std::size_t bytes;
        std::uint32_t alignment = 1;
        bool written = false;
        bool sized = false;      // what steps need of it depends on the run's sizes
        std::size_t fixed = 0;   // what steps without sizes need of it
        std::size_t needed = 0;  // in the last run
        void *base = nullptr;    // in the last run
    };

    // Checks a step, and notes what it needs of its regions.
    void take(const RecordedStep &step);
    void take_place(const vtensor_step &step, const Plane &plane, const Place &place);
    // Fills the table of sizes and finds what steps need, if a size is not that of the last run.
    void resize(std::span<const std::int64_t> sizes);
    void resize(const RecordedStep &step, std::span<std::int64_t> own);  // its part of the table
    void check_bindings(std::span<const Memory> bindings) const;
    // Fills the table of addresses if a base is another than in the last run.
    void settle(std::span<const Memory> bindings, std::span<const Lease> leases);
    // Throws unless every region is aligned and none overlaps one that is written. Sorts by_base_.
    void check_bases();
    // With doubts if that has been of use: see vtensor_run.doubt.
    void run_steps(void *queue, Stop &stop, std::int64_t *times);
    void run_once(Runner &runner, Stop &stop, std::int64_t *times) const;

    std::vector<Region> regions_;
    std::vector<RecordedStep> steps_;
    std::vector<std::size_t> bound_;
    std::vector<std::size_t> by_base_;  // all regions, by the addresses of the last check
    std::vector<void *> table_;  // the addresses of all planes, step after step
    bool settled_ = false;
    std::vector<std::int64_t> sizes_;       // of the last run
    std::vector<std::int64_t> size_table_;  // all steps' own, step after step
    bool resized_ = false;
    const vtensor_step *queued_ = nullptr;  // one of those for a device, if there are any
    Holder running_ = 0;
    Arena *arena_ = nullptr;  // the first, if there is one
    Caution caution_;         // without an arena
    bool ran_ = false;
    bool repeatable_;
};

}  // namespace vtensor::replay
