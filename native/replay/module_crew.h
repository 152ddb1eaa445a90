// native/replay/module_crew.h: a team with its thread, and Python's callers that wait for it.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "home.h"
#include "module_program.h"
#include "team.h"

namespace vtensor::replay {

// A team, its thread, and those who wait for it. All but the team is guarded by the interpreter's
// lock.
struct Crew {
    Crew(int threads, const std::string &name);

    // Queues a job and waits for it without the lock; a signal's exception ends it early. Throws
    // Circular if the thread waits for the caller.
    void run(Job &job, const nb::object &waits_for_caller);
    // Does a run's work on the calling thread, without the lock, and says so; or says that it
    // cannot: the turn is somebody else's, or the thread would need a team and is not at home.
    bool run_here(const PyProgram &program, const std::function<void(Stop &)> &work,
                  const nb::object &waits_for_caller);
    // Whether the calling thread may have the team, whose own thread has none then.
    bool is_home(const nb::object &waits_for_caller);
    // Raises KeyboardInterrupt in the function that runs.
    void interrupt();
    void close();
    // The thread has ended, and all its callers are back in Python.
    bool is_over() const { return !thread.joinable() && waiting == 0; }
    // A forked child has its parent's crews, and none of their threads.
    bool is_of_this_process() const { return process == getpid(); }

    Team team;
    Home home;
    const int threads;
    std::thread thread;
    int waiting = 0;
    const Job *in_python = nullptr;  // the one whose function runs
    bool interrupted = false;         // that function
    unsigned long python_thread = 0;  // Python's number for the thread
    const pid_t process = getpid();
};

}  // namespace vtensor::replay
