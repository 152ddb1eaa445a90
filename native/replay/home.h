// native/replay/home.h: whose OpenMP team runs the programs of several threads. No Python in here.
#pragma once

#include <thread>

namespace vtensor::replay {

// Gives up the calling thread's team, if it has one: libgomp keeps it as long as the thread lives,
// and takes less of the processors' time only as long as all teams together fit on them.
void end_team();

// Starts threads that exist at the same time, as many as `wanted`, ends them, and returns how many
// the system gave. libgomp ends the process where it cannot start a thread of a team.
int startable(int wanted);

// The most threads of a team next to its first. A step may use fewer threads than the team has;
// libgomp then ends the others, and starts new ones for the next step before those are gone.
inline int most_workers(int threads) { return 2 * (threads - 1); }

// The thread that runs programs itself, on a team of its own, since nobody else does. Whoever uses
// it sees to it that only one thread does at a time.
class Home {
public:
    // Whether the calling thread, which is about to run a program, is at home: it has run so many in
    // a row, and may be on so many processors. Another thread's run ends that, and next time it
    // takes more of them.
    bool is_here(int processors);
    // How much the crew's own thread has done, after which it may have a team.
    int jobs() const { return jobs_; }
    void worked() { ++jobs_; }
    // No thread may have a team beside that of the crew's own thread: there are no threads for it.
    void refuse();
    // It has ended that team after so many jobs; and whether it has none now.
    void cleared(int jobs) { cleared_ = jobs; }
    bool is_clear() const { return jobs_ == cleared_; }
    // Whether the calling thread has a team from a time when it was at home; from now on not.
    static bool leave();
    // The calling thread will have one.
    static void enter();

private:
    std::thread::id home_{}, last_{};
    int in_a_row_ = 0, enough_ = 16;
    int jobs_ = 0, cleared_ = 0;
};

}  // namespace vtensor::replay
