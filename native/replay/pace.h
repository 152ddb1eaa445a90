// native/replay/pace.h: runs wait for their CPU quota before they begin. No Python in here.
#pragma once

#include <chrono>
#include <limits>

namespace vtensor::replay {

// The schedule of runs under a CPU quota. The system stops a group of processes that has used up
// its quota until the period is over, also in the middle of a run: with a quota of 1.5 processors,
// a team of two for a quarter of each period. A run therefore waits before it begins until the
// process has saved enough quota for it and some more runs. Throughput stays about the same, and no
// run stands still for as long.
class Pace {
public:
    // The quota: processors per period. Throws std::invalid_argument unless both are above 0.
    Pace(double processors, std::chrono::nanoseconds period);

    // Returns how long a run on `threads` threads waits, if the last one took `run`. now: by any
    // clock; used: CPU time of the process until then.
    std::chrono::nanoseconds wait(std::chrono::nanoseconds now, std::chrono::nanoseconds used,
                                  int threads, std::chrono::nanoseconds run);
    bool is_of(double processors, std::chrono::nanoseconds period) const {
        return processors_ == processors && period_ == static_cast<double>(period.count());
    }

private:
    // Usable part of the quota for a team with more threads than the quota has processors: the
    // system hands the quota out in slices, and other work is not foreseen.
    static constexpr double kPart = 0.975;
    // The most that runs wait to save, in parts of a period: kMost for each processor of the quota,
    // or, if that is less, for kLacks times the processors by which a team exceeds the quota.
    static constexpr double kMost = 0.1, kLacks = 3;
    // Number of runs for which a waiting run saves, so that the next ones need not wait.
    static constexpr double kRuns = 3.2;

    double processors_, period_;  // times in nanoseconds
    double saved_ = std::numeric_limits<double>::infinity();  // starts with as much as possible
    double now_ = 0, used_ = 0;
};

// Sets the quota of this process; infinity for none. Throws like Pace.
void limit_processors(double processors, std::chrono::nanoseconds period);

// Returns whether this process has a quota.
bool has_quota();

// Waits until a run on `threads` threads may begin, if the last one took `run`: at most a fifth of
// a period.
void keep_pace(int threads, std::chrono::nanoseconds run);

}  // namespace vtensor::replay
