// native/replay/pace.h: runs at the pace that a quota of processors allows. No Python in here.
#pragma once

#include <chrono>
#include <limits>

namespace vtensor::replay {

// A group of processes that has used up its quota is stopped until the period is over, in the
// middle of a run: with 1.5 processors, a team of two for a quarter of each period. So a run waits
// before it begins until what its process has saved of the quota is enough for it, and for some
// more runs. About as many are done in all, and none of them stands still for so long.
class Pace {
public:
    // So many processors in each period. Throws std::invalid_argument where that is no quota.
    Pace(double processors, std::chrono::nanoseconds period);

    // For how long a run waits on so many threads, of which the last took so long.
    // `now`: by any clock; `used`: the processors' time that the process has had until then.
    std::chrono::nanoseconds wait(std::chrono::nanoseconds now, std::chrono::nanoseconds used,
                                  int threads, std::chrono::nanoseconds run);
    bool is_of(double processors, std::chrono::nanoseconds period) const {
        return processors_ == processors && period_ == static_cast<double>(period.count());
    }

private:
    // The part of the quota that a team gets which has more threads than there are processors: the
    // system hands it out in slices, and other work is not foreseen.
    static constexpr double kPart = 0.975;
    // What runs wait for at most: of a period, for as many processors as there are, or for so many
    // times those that a team lacks.
    static constexpr double kMost = 0.1, kLacks = 3;
    // How many runs wait at once, so that the usual one need not.
    static constexpr double kRuns = 3.2;

    double processors_, period_;  // times in nanoseconds
    double saved_ = std::numeric_limits<double>::infinity();  // all that can be, to begin
    double now_ = 0, used_ = 0;
};

// The quota of this process; infinity without one. Throws as Pace does.
void limit_processors(double processors, std::chrono::nanoseconds period);

// Whether there is one.
bool has_quota();

// Waits until a run may begin on so many threads, of which the last took so long: a fifth of a
// period at most.
void keep_pace(int threads, std::chrono::nanoseconds run);

}  // namespace vtensor::replay
