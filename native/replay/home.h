// native/replay/home.h: inline execution: whether a program runs on its caller's thread, with an
// OpenMP team there. No Python in here.
#pragma once

#include <thread>

namespace vtensor::replay {

// Ends the calling thread's OpenMP team, if it has one. libgomp keeps a team as long as its thread
// lives, and lets waiting threads spin only while all teams together fit on the processors.
void end_team();

// Starts up to `wanted` threads that exist at the same time, ends them, and returns how many the
// system allowed. (libgomp ends the process if it cannot start a thread of a team.)
int startable(int wanted);

// The most threads of a team besides its first. If a step uses fewer threads than the team has,
// libgomp ends the others, and starts new ones for the next step before those are gone.
inline int most_workers(int threads) { return 2 * (threads - 1); }

// The choice of the thread that executes programs inline, on an OpenMP team of its own: the thread
// that ran all of the last programs. Callers serialise access.
class Home {
public:
    // Returns whether the calling thread may run its program inline: it has run enough programs in
    // a row, and may use this many processors. A run of another thread ends that, and doubles the
    // number needed next time.
    bool is_here(int processors);
    // The number of jobs that the server thread has done; after any of them it may have an OpenMP
    // team.
    int jobs() const { return jobs_; }
    void worked() { ++jobs_; }
    // Forbids inline execution for good: the system has no threads for a second team.
    void refuse();
    // Records that the server thread ended its team after `jobs` jobs; is_clear() returns whether
    // it has done no job since.
    void cleared(int jobs) { cleared_ = jobs; }
    bool is_clear() const { return jobs_ == cleared_; }
    // Returns whether the calling thread still has a team from inline execution, and forgets that
    // it does.
    static bool leave();
    // Records that the calling thread is about to have a team.
    static void enter();

private:
    std::thread::id home_{}, last_{};
    int in_a_row_ = 0, enough_ = 16;
    int jobs_ = 0, cleared_ = 0;
};

}  // namespace vtensor::replay
