// native/replay/shared.h: teams wait less where others use the processors too. No Python in here.
#pragma once

#include <chrono>
#include <optional>

#include "seats.h"

namespace vtensor::replay {

// Whether others use the processors too, as looks say; a single look says little, since some task of
// the system always wakes up now and then. That they do is tried again now and then: a thread that
// sleeps may be woken on the processor of its waker, and wait there for us alone.
class Crowding {
public:
    // Whether a team had to wait for processors, this time, and for how long a thread did. Returns the
    // judgement.
    bool observe(bool crowded, std::chrono::nanoseconds waited = {});
    // The same of a team whose threads share a processor: of others it knows how much of this time
    // the other processor was idle, a part of 1 (below 0: not known), and whether theirs was not
    // their own.
    bool observe_together(double idle, bool held_up);
    bool shared() const { return shared_; }

    // From a processor that is idle for more than this part others have gone.
    static constexpr double kIdle = 3.0 / 4;

private:
    // To begin, how many in a row have to say so: some task of the system takes a processor for 20 to
    // 50 ms now and then, and threads that sleep at once would double what runs behind it take. Where
    // others were there just before, fewer do, and where a thread has waited for longer than that:
    // there is one look a run, which may take 100 ms. And to end, since that costs more if it is
    // wrong. A quota of processors stops a team once in 100 ms: so many looks fit between.
    static constexpr int kBegin = 6, kAgain = 2, kEnd = 4;
    static constexpr auto kLong = std::chrono::milliseconds(60);
    // Of a processor that hardly is idle so few looks count.
    static constexpr double kHardly = 1.0 / 8;
    static constexpr int kFew = 16;
    // After how many looks it is tried whether they still do; twice as many where they did.
    static constexpr int kTry = 64, kMostPatient = 4096;

    bool shared_ = false;
    int begin_ = kBegin;
    int against_ = 0;
    std::chrono::nanoseconds waited_{};  // meanwhile
    int looks_ = 0;  // since it began, or ended
    int uncounted_ = 0;
    int patience_ = kTry;
};

// A thread of a team that waits for the others spins for a while, and may so take the processor
// from the one that it waits for. libgomp spins far less as soon as the teams of its process have
// more threads than there are processors. So where a team of so many threads shares the processors,
// another one, which sleeps, makes them more: one thread where the first team has all processors,
// and never more threads than the first has.
void share_processors(bool shared, int threads);

// The same by somebody who knows better than looks: where it is not so, they begin anew.
void say_shared(bool shared, int threads);

// While a team of so many threads works, on its first thread. It begins when a quota of processors
// allows it: that may take a fifth of the quota's period. The threads of a team of two have seats,
// unless Python is called. At the end it looks now and then how long threads had to wait for
// processors, which takes some microseconds. Two that share a processor wait for each other: then it
// looks whether the other processor is idle, and whether theirs is their own. Nobody looks, and
// nobody sits, where GOMP_SPINCOUNT or OMP_WAIT_POLICY says how long threads are to spin.
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
    long long idle_ = -1;  // of the processor that is left to others, at the begin
};

}  // namespace vtensor::replay
