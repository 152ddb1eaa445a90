// native/replay/module_crew.h: a thread team with its server thread, and the Python callers that
// wait for it.
#pragma once

#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "home.h"
#include "module_program.h"
#include "team.h"

namespace vtensor::replay {

// A team, its server thread, and the callers that wait for it. The interpreter's lock guards all
// members but the team.
struct Crew {
    Crew(int threads, const std::string &name);

    // Queues a job and waits for it without the interpreter's lock; a signal's exception ends the
    // wait. Throws Circular if the server thread waits for the caller.
    void run(Job &job, const nb::object &waits_for_caller);
    // Executes a run inline on the calling thread, without the interpreter's lock, and returns
    // true. Returns false if it cannot: another caller has the turn, or the run needs a team and
    // the caller may not have one.
    bool run_here(const PyProgram &program, const std::function<void(Stop &)> &work,
                  const nb::object &waits_for_caller);
    // Returns whether the calling thread may have an OpenMP team; the server thread then has none.
    bool is_home(const nb::object &waits_for_caller);
    // Raises KeyboardInterrupt in the Python function that a job is running.
    void interrupt();
    void close();
    // Returns whether the server thread has ended and all its callers have returned to Python.
    bool is_over() const { return !thread.joinable() && waiting == 0; }
    // Returns false in a forked child, which has its parent's crews and none of their threads.
    bool is_of_this_process() const { return process == getpid(); }

    Team team;
    Home home;
    const int threads;
    std::thread thread;
    int waiting = 0;
    const Job *in_python = nullptr;  // the job whose Python function is running
    bool interrupted = false;         // whether that function is interrupted
    unsigned long python_thread = 0;  // Python's identifier of the thread
    const pid_t process = getpid();
};

}  // namespace vtensor::replay
