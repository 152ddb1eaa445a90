// native/replay/pace.h: runs at the pace that a quota of processors allows. No Python in here.
#pragma once

#include <chrono>
#include <limits>

namespace vtensor::replay {

// A group of processes that has used up its quota is stopped until the period is over, in the middle
// of a run: with 1.5 processors, a team of two for a quarter of each period. So a run waits before it
// begins until what its process has saved of the quota is enough for it, and for some more runs. As
// many are done in all, and none of them stands still for so long.
class Pace {
public:
    // So many processors in each period.
    Pace(double processors, std::chrono::nanoseconds period);

    // For how long a run waits that takes so long on so many threads.
    // `now`: by any clock; `used`: the processors' time that the process has had until then.
    std::chrono::nanoseconds wait(std::chrono::nanoseconds now, std::chrono::nanoseconds used,
                                  int threads, std::chrono::nanoseconds run);

private:
    // The part of the quota that is shared out to teams which are larger: the system hands it out in
    // slices, and other work is not foreseen.
    static constexpr double kPart = 0.975;
    // What is saved at most: of a period, for as many processors as there are, or for so many times
    // those that a team lacks.
    static constexpr double kMost = 0.1, kLacks = 3;
    // How many runs wait at once, so that the usual one need not.
    static constexpr double kRuns = 3.2;

    double processors_, period_;  // times in nanoseconds
    double saved_ = std::numeric_limits<double>::infinity();  // all that can be, to begin
    std::chrono::nanoseconds now_{}, used_{};
};

// The quota of this process; infinity without one.
void limit_processors(double processors, std::chrono::nanoseconds period);

// Waits until a run may begin that takes so long on so many threads.
void keep_pace(int threads, std::chrono::nanoseconds run);

}  // namespace vtensor::replay
