// native/replay/shared.h: teams spin less while other processes use the processors. No Python in
// here.
#pragma once

#include <chrono>
#include <optional>

#include "seats.h"

namespace vtensor::replay {

// The judgement whether other processes use the processors (`shared`), from periodic observations
// of a team's runs (looks). A single look proves little, since system tasks wake up now and then. A
// positive judgement is given up for a trial now and then: a thread that sleeps may be woken on the
// processor of its waker, where it waits for its own team and for no other process.
class Crowding {
public:
    // Adds a look. crowded: whether a thread of the team had to wait for a processor; waited: for
    // how long. Returns the judgement, as shared().
    bool observe(bool crowded, std::chrono::nanoseconds waited = {});
    // Adds a look at a team whose two threads share one of two processors. idle: the fraction of
    // the time in which the other processor was idle, negative if unknown; held_up: whether other
    // processes used the shared processor. Returns the judgement, as shared().
    bool observe_together(double idle, bool held_up);
    bool shared() const { return shared_; }

    // A processor that is idle for more than this part has no other process on it.
    static constexpr double kIdle = 3.0 / 4;

private:
    // Looks in a row that are needed for a positive judgement: kBegin, since system tasks take a
    // processor for 20 to 50 ms now and then, and sleeping too early doubles the time of what
    // follows; kAgain if the judgement was positive just before, or if a thread has waited for more
    // than kLong, since there is one look per run and a run may take 100 ms. kEnd looks are needed
    // for a negative one, since that costs more if it is wrong: a CPU quota stops a team once in
    // 100 ms, and this many looks fit in between.
    static constexpr int kBegin = 6, kAgain = 2, kEnd = 4;
    static constexpr auto kLong = std::chrono::milliseconds(60);
    // If the other processor is idle for less than kHardly, only one look in kFew counts.
    static constexpr double kHardly = 1.0 / 8;
    static constexpr int kFew = 16;
    // Looks until a positive judgement is tried anew; doubled, up to kMostPatient, each time that
    // it holds.
    static constexpr int kTry = 64, kMostPatient = 4096;

    bool shared_ = false;
    int begin_ = kBegin;
    int against_ = 0;
    std::chrono::nanoseconds waited_{};  // during the looks counted in against_
    int looks_ = 0;  // since the judgement changed
    int uncounted_ = 0;
    int patience_ = kTry;
};

// Starts or ends the idle team that makes other teams spin less. A thread that waits for its team
// spins for a while and may so take the processor from the thread that it waits for. libgomp spins
// far less if its teams together have more threads than there are processors. If a team of
// `threads` shares the processors with other processes, an idle team exceeds that number: by one
// thread if the first team has all processors, and never with more threads than the first team has.
void share_processors(bool shared, int threads);

// Sets the judgement from outside; false restarts the looks.
void say_shared(bool shared, int threads);

// The scope of a run of a team, on its first thread. It begins when a CPU quota allows it, after a
// fifth of the quota's period at most. The threads of a team of two are pinned, unless the run
// calls Python. At its end it looks now and then how long threads waited for processors, which
// takes some microseconds. Two threads on one processor wait for each other; then it looks at the
// idle time of the other processor, and at the use of theirs. If GOMP_SPINCOUNT or OMP_WAIT_POLICY
// sets how long threads spin, nothing is looked at and nothing pinned.
class Working {
public:
    Working(int threads, bool calls_python);
    ~Working();
    Working(const Working &) = delete;
    Working &operator=(const Working &) = delete;

private:
    int threads_;
    std::chrono::steady_clock::time_point begin_;
    std::optional<Seated> seated_;
    long long idle_ = -1;  // at the begin, of the processor left to other processes
};

}  // namespace vtensor::replay
