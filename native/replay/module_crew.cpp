// native/replay/module_crew.cpp: a thread team with its server thread, and the Python callers that
// wait for it.
#include "module_crew.h"

#include <omp.h>
#include <pthread.h>

#include <chrono>
#include <exception>
#include <system_error>

#include "thread.h"

namespace vtensor::replay {

namespace {

// Interval at which a waiting caller checks for signals.
constexpr std::chrono::milliseconds kPatience{50};

// A Python thread state for the calling thread's lifetime: without it, each call would make one,
// and Python's thread-local values would be lost.
class PythonThread {
public:
    PythonThread() : lock_(take_lock(&PyGILState_Ensure)), state_(PyEval_SaveThread()) {}
    ~PythonThread() {
        take_lock([this] { PyEval_RestoreThread(state_); });
        PyGILState_Release(lock_);
    }
    PythonThread(const PythonThread &) = delete;
    PythonThread &operator=(const PythonThread &) = delete;

private:
    PyGILState_STATE lock_;
    PyThreadState *state_;
};

// Returns whether a Python function without arguments returns a true value; False if it raises.
bool is_true(const nb::object &function) {
    if (function.is_none()) return false;
    PyObject *const answer = PyObject_CallNoArgs(function.ptr());
    const bool found = answer != nullptr && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Clear();
    return found;
}

// Marks, for a scope, that a caller executes its own work in the team's turn.
class Entered {
public:
    explicit Entered(Team &team) : team_(team) {}
    ~Entered() { team_.leave(); }
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;

private:
    Team &team_;
};

// Counts, for a scope, a caller that has not returned to Python.
class Away {
public:
    explicit Away(int &waiting) : waiting_(waiting) { ++waiting_; }
    ~Away() { --waiting_; }
    Away(const Away &) = delete;
    Away &operator=(const Away &) = delete;

private:
    int &waiting_;
};

// Runs Python's signal handlers and throws their exception. Python runs them on its main thread
// only.
void look_for_signals() {
    const Locked locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

Crew::Crew(int threads, const std::string &name) : threads(threads) {
    try {
        thread = std::thread([this, threads, name] {
            const PythonThread python;
            pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
            omp_set_num_threads(threads);
            team.serve();
        });
    } catch (const std::system_error &) {
        throw NoThreads(0, 1 + most_workers(threads));
    }
    const int workers = startable(most_workers(threads));
    if (workers < most_workers(threads)) {
        close();
        throw NoThreads(1 + workers, 1 + most_workers(threads));
    }
}

void Crew::run(Job &job, const nb::object &waits_for_caller) {
    home.worked();
    team.submit(job);
    std::exception_ptr signal;
    const Away away(waiting);
    for (bool done = false; !done;) {
        {
            const Unlocked unlocked;
            done = team.wait(job, kPatience);
        }
        if (done || signal) continue;
        if (PyErr_CheckSignals() == 0) {
            if (!is_true(waits_for_caller) || !team.withdraw(job)) continue;
            throw Circular("the team's thread waits for this one");
        }
        signal = std::make_exception_ptr(nb::python_error());
        team.cancel(job);
        if (in_python == &job) interrupt();
    }
    if (signal) std::rethrow_exception(signal);
    job.rethrow();
}

bool Crew::is_home(const nb::object &waits_for_caller) {
    if (omp_get_level() != 0 || !home.is_here(threads)) {
        if (Home::leave()) end_team();
        return false;
    }
    if (home.is_clear()) return true;
    if (startable(threads - 1) < threads - 1) {
        home.refuse();
        return false;
    }
    Job ending([](const std::atomic<bool> &) { end_team(); });
    const int jobs = home.jobs() + 1;
    try {
        run(ending, waits_for_caller);
    } catch (const Circular &) {
        return false;
    }
    home.cleared(jobs);
    return home.is_clear();  // false if another thread had a job meanwhile
}

bool Crew::run_here(const PyProgram &program, const std::function<void(Stop &)> &work,
                    const nb::object &waits_for_caller) {
    // Call-backs run on the team's thread, where they look up the run that called them.
    if (program.calls_python() || !has_stack()) return false;
    if (threads > 1 && !is_home(waits_for_caller)) return false;
    if (!team.enter()) return false;
    if (threads > 1) Home::enter();
    const Away away(waiting);
    const Unlocked unlocked;
    const Entered entered(team);
    const ThreadScope scope(threads);
    const FloatScope plain;
    const bool first = gettid() == getpid();
    Stop stop(team.stop(), first ? &look_for_signals : nullptr);
    work(stop);
    return true;
}

void Crew::interrupt() {
    interrupted = true;
    PyThreadState_SetAsyncExc(python_thread, PyExc_KeyboardInterrupt);
}

void Crew::close() {
    team.close();
    if (team.serves_here()) return;  // joined when the interpreter ends
    std::thread ending = std::move(thread);
    if (!ending.joinable()) return;
    const Unlocked unlocked;
    ending.join();
}

}  // namespace vtensor::replay
