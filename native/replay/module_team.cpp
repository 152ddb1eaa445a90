// native/replay/module_team.cpp: Team as Python sees it: a thread with a queue and an OpenMP team.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <nanobind/typing.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "module_team.h"
#include "pace.h"
#include "shared.h"

using namespace nb::literals;

namespace vtensor::replay {

namespace {

// Marks, for a scope, that the crew's thread runs a job's Python function, which can be
// interrupted.
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
    // Takes an interruption that came too late: Python raises it in the next code that runs here,
    // which is this.
    static void drain() {
        const nb::dict globals;
        Py_XDECREF(PyRun_String("None", Py_eval_input, globals.ptr(), globals.ptr()));
        PyErr_Clear();
    }

    Crew &crew_;
};

// The crews that are not over; in a forked child, its parent's too. Never destroyed: a thread of
// another process cannot be.
std::vector<std::shared_ptr<Crew>> &crews() {
    static auto &all = *new std::vector<std::shared_ptr<Crew>>();
    return all;
}

bool interpreter_ends = false;

// Closes all teams before the interpreter ends: a thread that asked for its lock later would be
// unwound through destructors, which ends the process.
void close_all() {
    interpreter_ends = true;
    const std::vector<std::shared_ptr<Crew>> all = crews();
    for (const auto &crew : all) {
        if (!crew->is_of_this_process()) continue;
        crew->close();
        while (!crew->is_over()) {
            const Unlocked unlocked;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

}  // namespace

PyTeam::PyTeam(int threads, const std::string &name, nb::object waits_for_caller)
    : waits_for_caller_(std::move(waits_for_caller)) {
    check_threads(threads);
    if (interpreter_ends) throw Stopped("the interpreter is shutting down");
    std::erase_if(crews(), [](const auto &crew) { return crew->is_over(); });
    crew_ = crews().emplace_back(std::make_shared<Crew>(threads, name));
}

nb::object PyTeam::call(nb::callable function) {
    Crew &crew = own();
    if (crew.team.serves_here()) return function();
    nb::object answer;
    Job job([&](const std::atomic<bool> &) {
        const Locked locked;
        const InPython python(crew, job);
        answer = function();
    });
    crew.run(job, waits_for_caller_);
    return answer;
}

bool PyTeam::run(PyProgram &program, nb::sequence bindings, nb::object times, const Sizes &sizes,
                 nb::object queue, const GivenExponents &looked_for) {
    own();  // its refusal precedes any other
    const Bindings bound(program.program(), bindings, times);
    const Exponents exponents = exponents_in(looked_for, bound.memory().size());
    return replay(program, bound, exponents, {bound.memory(), sizes, queue_in(queue)});
}

bool PyTeam::replay(PyProgram &program, const Bindings &bound, const Exponents &exponents,
                    const Given &given) {
    Crew &crew = own();
    bool finite = true;
    const auto work = [&](Stop &stop) {
        const Working working(crew.threads, program.calls_python());
        // Memory that is only read is searched before the run, which brings it into caches; but not
        // if call-backs run, which may write anywhere.
        const bool before = !program.calls_python();
        const bool sound = !before || bound.all_finite(exponents, false);
        program.program().run(given, stop, bound.times());
        finite = sound && bound.all_finite(exponents, true) &&
                 (before || bound.all_finite(exponents, false));
    };
    const auto on_team = [&](const std::atomic<bool> &flag) {
        Stop stop(flag);
        work(stop);
    };
    if (crew.team.serves_here()) {
        const Unlocked unlocked;
        on_team(crew.team.stop());
    } else if (!crew.run_here(program, work, waits_for_caller_)) {
        Job job(on_team);
        crew.run(job, waits_for_caller_);
    }
    return finite;
}

void PyTeam::close() {
    if (crew_ && crew_->is_of_this_process()) crew_->close();
}

Crew &PyTeam::own() const {
    if (!crew_->is_of_this_process())
        throw Stopped("the team's thread is not in this process, which was forked");
    return *crew_;
}

void bind_team(nb::module_ &m) {
    m.attr("T") = nb::type_var("T");
    nb::class_<PyTeam>(m, "Team", nb::is_final(),
                       R"(A thread that owns an OpenMP team of so many threads; work queues there.

Work that the thread itself asks for (a call-back step that runs a session of its own) runs at
once. Where nobody else works or waits, a run without Python is its caller's own work: that of a
team of one thread always, that of a larger one once its thread has run many in a row. A signal,
as of Ctrl-C, asks the work to end: programs do between two steps. When the interpreter ends,
all teams are closed. While work waits in the queue, ``waits_for_caller`` is asked now and
then, on the thread whose work it is: yes means that it would wait for ever.

Raises:
    ValueError: ``threads`` is out of range (1 to 1024).
    NoThreads: the system does not let this process start so many.
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
             "sizes"_a = Sizes(), "queue"_a = nb::none(), "exponents"_a = GivenExponents(),
             nb::sig("def run(self, program: Program, bindings: collections.abc.Sequence[object], "
                     "times: object | None = None, sizes: collections.abc.Sequence[int] = (), "
                     "queue: object | None = None, "
                     "exponents: collections.abc.Sequence[tuple[int, int]] = ()) -> bool"),
             R"(Run a program's steps, without the interpreter's lock, and wait.

Returns whether the numbers that the bindings hold then are all finite, where ``exponents``
says of each what to look for, as for ``finite``; True where nobody looks.

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
    nb::class_<Crowding>(m, "Crowding", nb::is_final(),
                         R"(Whether others use the processors too, as looks at them say.

Runs of teams look now and then: whether a thread had to wait for a processor.)")
        .def(nb::init<>())
        .def(
            "observe",
            [](Crowding &self, bool crowded, std::int64_t waited) {
                return self.observe(crowded, std::chrono::nanoseconds(waited));
            },
            "crowded"_a, "waited"_a = 0,
            R"(Take what a look has found; returns the judgement of all so far.

``waited``: for how long a thread had to, in nanoseconds.)")
        .def("observe_together", &Crowding::observe_together, "idle"_a, "held_up"_a,
             R"(The same of threads that share a processor.

``idle``: the part of this time for which the other processor was; below 0: not known.
``held_up``: theirs was not their own.)");
    m.def("share_processors", &say_shared, "shared"_a, "threads"_a,
          R"(Say whether others use the processors too: a team's threads that wait then sleep sooner.

Runs of teams say it themselves. ``threads``: of the team.)");
    nb::class_<Pace>(m, "Pace", nb::is_final(),
                     R"(When runs begin under a quota of processors, so that none is stopped for long.

Runs of teams keep it where ``limit_processors`` said one. Times are in nanoseconds.

Raises:
    ValueError: there are no processors, or no period.)")
        .def("__init__",
             [](Pace *self, double processors, std::int64_t period) {
                 new (self) Pace(processors, std::chrono::nanoseconds(period));
             },
             "processors"_a, "period"_a)
        .def("wait",
             [](Pace &self, std::int64_t now, std::int64_t used, int threads, std::int64_t run) {
                 using std::chrono::nanoseconds;
                 check_threads(threads);
                 if (run < 0) throw std::invalid_argument("a run takes no less than no time");
                 return self.wait(nanoseconds(now), nanoseconds(used), threads, nanoseconds(run))
                     .count();
             },
             "now"_a, "used"_a, "threads"_a, "run"_a,
             R"(For how long a run waits on so many threads, of which the last took ``run``.

``now``: by any clock; ``used``: the processors' time that the process has had until then.

Raises:
    ValueError: ``threads`` is out of range (1 to 1024), or ``run`` negative.)");
    m.def(
        "limit_processors",
        [](double processors, std::int64_t period) {
            limit_processors(processors, std::chrono::nanoseconds(period));
        },
        "processors"_a, "period"_a,
        R"(Say how many processors this process may use in each period of nanoseconds.

Runs of all teams keep to it. Infinity: there is no quota.

Raises:
    ValueError: there are no processors, or no period.)");
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_all));
}

}  // namespace vtensor::replay
