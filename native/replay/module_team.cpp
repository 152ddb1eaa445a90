// native/replay/module_team.cpp: Team as Python sees it: a thread with a queue and an OpenMP team.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "home.h"
#include "module_program.h"
#include "team.h"
#include "thread.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// How long a caller waits before it looks for signals.
constexpr std::chrono::milliseconds kPatience{50};

// The interpreter's state of the calling thread, for as long as the thread lives: without, each
// call would make one, and Python's thread-local values would not last.
class PythonThread {
public:
    PythonThread() : lock_(PyGILState_Ensure()), state_(PyEval_SaveThread()) {}
    ~PythonThread() {
        PyEval_RestoreThread(state_);
        PyGILState_Release(lock_);
    }
    PythonThread(const PythonThread &) = delete;
    PythonThread &operator=(const PythonThread &) = delete;

private:
    PyGILState_STATE lock_;
    PyThreadState *state_;
};

// What a function without arguments answers; it fails as if it said no.
bool is_true(const nb::object &function) {
    if (function.is_none()) return false;
    PyObject *const answer = PyObject_CallNoArgs(function.ptr());
    const bool found = answer != nullptr && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Clear();
    return found;
}

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

// While the crew's thread is in a job's function, which can be interrupted.
class InPython {
public:
    InPython(Crew &crew, const Job &job) : crew_(crew) {
        crew_.in_python = &job;
        crew_.interrupted = false;
        crew_.python_thread = PyThread_get_thread_ident();
    }
    ~InPython() {
        crew_.in_python = nullptr;
        if (crew_.interrupted) drain();
    }
    InPython(const InPython &) = delete;
    InPython &operator=(const InPython &) = delete;

private:
    // An interruption that came too late is raised by the next Python that runs here: this.
    static void drain() {
        const nb::dict globals;
        Py_XDECREF(PyRun_String("None", Py_eval_input, globals.ptr(), globals.ptr()));
        PyErr_Clear();
    }

    Crew &crew_;
};

Crew::Crew(int threads, const std::string &name) : threads(threads) {
    thread = std::thread([this, threads, name] {
        const PythonThread python;
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        omp_set_num_threads(threads);
        team.serve();
    });
}

// While a caller does its own work in a team's turn.
class Entered {
public:
    explicit Entered(Team &team) : team_(team) {}
    ~Entered() { team_.leave(); }
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;

private:
    Team &team_;
};

// While a caller is not back in Python.
class Away {
public:
    explicit Away(int &waiting) : waiting_(waiting) { ++waiting_; }
    ~Away() { --waiting_; }
    Away(const Away &) = delete;
    Away &operator=(const Away &) = delete;

private:
    int &waiting_;
};

void Crew::run(Job &job, const nb::object &waits_for_caller) {
    home.worked();
    team.submit(job);
    std::exception_ptr signal;
    const Away away(waiting);
    for (bool done = false; !done;) {
        {
            const nb::gil_scoped_release unlocked;
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

// Throws a signal's exception. Python raises them on its first thread only, which is the process's.
void look_for_signals() {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

bool Crew::is_home(const nb::object &waits_for_caller) {
    if (omp_get_level() != 0 || !home.is_here(threads)) {
        if (Home::leave()) end_team();
        return false;
    }
    if (home.is_clear()) return true;
    Job ending([](const std::atomic<bool> &) { end_team(); });
    const int jobs = home.jobs() + 1;
    try {
        run(ending, waits_for_caller);
    } catch (const Circular &) {
        return false;
    }
    home.cleared(jobs);
    return home.is_clear();  // unless somebody else came meanwhile
}

bool Crew::run_here(const PyProgram &program, const std::function<void(Stop &)> &work,
                    const nb::object &waits_for_caller) {
    // Python would look for a call-back's run on the team's thread.
    if (program.calls_python() || !has_stack()) return false;
    if (threads > 1 && !is_home(waits_for_caller)) return false;
    if (!team.enter()) return false;
    if (threads > 1) Home::enter();
    const Away away(waiting);
    const nb::gil_scoped_release unlocked;
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
    const nb::gil_scoped_release unlocked;
    ending.join();
}

// The crews that are not over; in a forked child, its parent's too. Never destroyed, since a thread
// of another process cannot be.
std::vector<std::shared_ptr<Crew>> &crews() {
    static auto &all = *new std::vector<std::shared_ptr<Crew>>();
    return all;
}

bool interpreter_ends = false;

// Before the interpreter ends: a thread that asked for its lock later would be unwound through
// destructors, which ends the process.
void close_all() {
    interpreter_ends = true;
    const std::vector<std::shared_ptr<Crew>> all = crews();
    for (const auto &crew : all) {
        if (!crew->is_of_this_process()) continue;
        crew->close();
        while (!crew->is_over()) {
            const nb::gil_scoped_release unlocked;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

class PyTeam {
public:
    PyTeam(int threads, const std::string &name, nb::object waits_for_caller)
        : waits_for_caller_(std::move(waits_for_caller)) {
        check_threads(threads);
        if (interpreter_ends) throw Stopped("the interpreter is shutting down");
        std::erase_if(crews(), [](const auto &crew) { return crew->is_over(); });
        crew_ = crews().emplace_back(std::make_shared<Crew>(threads, name));
    }
    ~PyTeam() { close(); }
    PyTeam(const PyTeam &) = delete;
    PyTeam &operator=(const PyTeam &) = delete;

    nb::object call(nb::callable function) {
        Crew &crew = own();
        if (crew.team.serves_here()) return function();
        nb::object answer;
        Job job([&](const std::atomic<bool> &) {
            const nb::gil_scoped_acquire locked;
            const InPython python(crew, job);
            answer = function();
        });
        crew.run(job, waits_for_caller_);
        return answer;
    }

    void run(PyProgram &program, nb::sequence bindings, nb::object times, const Sizes &sizes,
             nb::object queue) {
        Crew &crew = own();
        const Bindings bound(program.program(), bindings, times);
        const Given given{bound.memory(), sizes, queue_in(queue)};
        const auto work = [&](Stop &stop) { program.program().run(given, stop, bound.times()); };
        const auto on_team = [&](const std::atomic<bool> &flag) {
            Stop stop(flag);
            work(stop);
        };
        if (crew.team.serves_here()) {
            const nb::gil_scoped_release unlocked;
            on_team(crew.team.stop());
        } else if (!crew.run_here(program, work, waits_for_caller_)) {
            Job job(on_team);
            crew.run(job, waits_for_caller_);
        }
    }

    int waiting() const { return crew_->waiting; }

    void close() {
        if (crew_ && crew_->is_of_this_process()) crew_->close();
    }

private:
    Crew &own() const {
        if (!crew_->is_of_this_process())
            throw Stopped("the team's thread is not in this process, which was forked");
        return *crew_;
    }

    std::shared_ptr<Crew> crew_;
    nb::object waits_for_caller_;
};

}  // namespace

void bind_team(nb::module_ &m) {
    m.attr("T") = nb::type_var("T");
    nb::class_<PyTeam>(m, "Team", nb::is_final(),
                       R"(A thread that owns an OpenMP team of so many threads; work queues there.

Work that the thread itself asks for (a call-back step that runs a session of its own) runs at
once. Where nobody else works or waits, a run without Python is its caller's own work: that of a
team of one thread always, that of a larger one once its thread has run many in a row. A signal,
as of Ctrl-C, asks the work to end: programs do between two steps. When the interpreter ends, all
teams are closed. While work waits in the queue, ``waits_for_caller`` is asked now and then, on
the thread whose work it is: yes means that it would wait for ever.

Raises:
    ValueError: ``threads`` is out of range (1 to 1024).
    Stopped: the interpreter is shutting down.)")
        .def(nb::init<int, const std::string &, nb::object>(), "threads"_a, "name"_a,
             "waits_for_caller"_a = nb::none(),
             nb::sig("def __init__(self, threads: int, name: str, "
                     "waits_for_caller: collections.abc.Callable[[], bool] | None = None) -> None"))
        .def("call", &PyTeam::call, "function"_a,
             nb::sig("def call(self, function: collections.abc.Callable[[], T]) -> T"),
             R"(Call a function on the team's thread, and wait.

Raises:
    Stopped: the team is closed, or was before the function began.
    Circular: the team's thread waits for this one; the function never begins.)")
        .def("run", &PyTeam::run, "program"_a, "bindings"_a, "times"_a = nb::none(),
             "sizes"_a = Sizes(), "queue"_a = nb::none(),
             nb::sig("def run(self, program: Program, bindings: collections.abc.Sequence[object], "
                     "times: object | None = None, sizes: collections.abc.Sequence[int] = (), "
                     "queue: object | None = None) -> None"),
             R"(Run a program's steps, without the interpreter's lock, and wait.

``bindings``: a buffer for each region that is a number, in order. ``times``: int64, two for
each step, which get its begin and its end in nanoseconds of the steady clock. ``sizes``: as
many as the program is made for. ``queue``: a capsule named "vtensor.queue", for steps that
are for a device; whoever made the queue waits for it.

Raises:
    TypeError, ValueError: a binding or ``times`` is no buffer, not contiguous, too small,
        misaligned, or read-only where a step writes, or is written and overlaps a region; a
        step does not take its sizes; a queue is missing, or none.
    StepFailed: a native step failed; ``index`` says which. A callable's own exception comes
        as it is.
    Stopped: the team was closed before the last step.
    Circular: as for ``call``.
    RuntimeError: the program, or one with its arena, is to run inside of its own run.)")
        .def_prop_ro("waiting", &PyTeam::waiting, "How many callers wait for work to be done.")
        .def("close", &PyTeam::close,
             R"(End the thread, after the step that runs. Work that waits is refused.)");
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_all));
}

}  // namespace vtensor::replay
