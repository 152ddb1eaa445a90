// native/replay/module_team.cpp: Team as Python sees it: a thread with a queue and an OpenMP team.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
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
#include "turns.h"

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

// The crews that are not over; in a forked child, its parent's too. Never destroyed: the child has
// no thread for the parent's std::thread objects, whose destructors would end it.
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
    const int threads = own().threads;
    bool finite = true;
    execute(program, [&](Stop &stop) {
        const Working working(threads, program.calls_python());
        // Memory that is only read is searched before the run, which brings it into caches; but not
        // if call-backs run, which may write anywhere.
        const bool before = !program.calls_python();
        const bool sound = !before || bound.all_finite(exponents, false);
        program.program().run(given, stop, bound.times());
        finite = sound && bound.all_finite(exponents, true) &&
                 (before || bound.all_finite(exponents, false));
    });
    return finite;
}

std::pair<std::int64_t, bool> PyTeam::repeat(PyProgram &program, nb::sequence bindings,
                                             const GivenCarried &carried, std::int64_t first,
                                             std::int64_t most) {
    const int threads = own().threads;
    if (program.calls_python()) throw nb::value_error("the program calls Python");
    const auto &[states, number, condition, sources, sinks] = carried;
    const nb::tuple given(bindings);  // a copy: another thread may change the caller's
    const std::vector<std::size_t> &bound = program.program().bound();
    std::vector<bool> written(given.size());
    const auto write = [&](std::size_t binding) {
        if (binding < written.size()) written[binding] = true;
    };
    for (std::size_t i = 0; i < bound.size(); ++i)
        if (program.program().is_written(bound[i])) write(i);
    for (const auto &[input, output] : states) write(input), write(output);
    if (number) write(*number);
    for (const auto &[binding, rows] : sources) write(binding);
    Buffers buffers(given.size()), held(sources.size() + sinks.size());
    for (std::size_t i = 0; i < given.size(); ++i)
        buffers.add(given[i], written[i], "binding " + std::to_string(i));
    const auto rows_of = [&](const GivenRows &pairs, bool writable) {
        std::vector<Rows> found;
        for (const auto &[binding, rows] : pairs) {
            held.add(rows, writable, "the rows of binding " + std::to_string(binding));
            found.push_back({binding, held.memory().back()});
        }
        return found;
    };
    Turns turns(program.program(), {buffers.memory().begin(), buffers.memory().end()},
                {states, number, condition, rows_of(sources, false), rows_of(sinks, true)}, most);
    execute(program, [&](Stop &stop) {
        const Working working(threads, false);
        turns.run(first, stop);
    });
    return {turns.done(), turns.goes_on()};
}

void PyTeam::execute(const PyProgram &program, const std::function<void(Stop &)> &work) {
    Crew &crew = own();
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
                       R"(A thread with an OpenMP team and a queue of work.

Work that this thread asks for itself (a call-back step that runs a session of its own) runs
at once. If no other work runs or waits, a program that does not call Python may run on its
caller's thread: always if ``threads`` is 1, else after many runs of that caller in a row. A
signal, such as Ctrl-C, asks the work to end; programs end between two steps. When the
interpreter ends, all teams are closed.

Args:
    threads: the number of threads of the OpenMP team, this one included.
    name: the thread's name, of which 15 bytes are used.
    waits_for_caller: called now and then by a thread whose work is in the queue. True means
        that the team's thread waits for that one, so that the work would never begin: the
        waiting thread gets Circular.

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
             R"(Call a function on the team's thread, wait, and return its result.

Raises:
    Stopped: the team is closed, or was before the function began.
    Circular: the team's thread waits for the calling thread; the function never begins.)")
        .def("run", &PyTeam::run, "program"_a, "bindings"_a, "times"_a = nb::none(),
             "sizes"_a = Sizes(), "queue"_a = nb::none(), "exponents"_a = GivenExponents(),
             nb::sig("def run(self, program: Program, bindings: collections.abc.Sequence[object], "
                     "times: object | None = None, sizes: collections.abc.Sequence[int] = (), "
                     "queue: object | None = None, "
                     "exponents: collections.abc.Sequence[tuple[int, int]] = ()) -> bool"),
             R"(Run a program's steps, without the interpreter's lock, and wait.

Returns whether all numbers in the bindings are finite.

Args:
    bindings: a buffer for each region that is a number, in order.
    times: a buffer of two int64 for each step, which get its begin and its end in
        nanoseconds of the steady clock; None: no times.
    sizes: as many numbers as the program's ``size_count``.
    queue: a capsule named "vtensor.queue", for steps of a device; the caller then waits for
        the queue.
    exponents: for each binding, as for ``finite``; without exponents the result is True.

Raises:
    TypeError, ValueError: a binding or ``times`` is no buffer, not contiguous, too small,
        misaligned, or read-only where a step writes, or is written and overlaps a region; a
        step does not take its sizes; a queue is missing, or none.
    StepFailed: a native step failed; ``index`` says which. A callable's own exception comes
        as it is.
    Stopped: the team was closed before the last step.
    Circular: as for ``call``.
    RuntimeError: another run, perhaps the one that calls this, uses the program or its
        arena.)")
        .def("repeat", &PyTeam::repeat, "program"_a, "bindings"_a, "carried"_a, "first"_a,
             "most"_a,
             nb::sig("def repeat(self, program: Program, "
                     "bindings: collections.abc.Sequence[object], "
                     "carried: tuple[collections.abc.Sequence[tuple[int, int]], int | None, "
                     "int | None, collections.abc.Sequence[tuple[int, object]], "
                     "collections.abc.Sequence[tuple[int, object]]], first: int, most: int) "
                     "-> tuple[int, bool]"),
             R"(Run a program turn after turn, as the body of a loop, for about 50 ms at most.

Returns the number of turns, and whether the condition would let a further turn follow.
After an odd number of turns, the memory of both sides of each state has changed places.

Args:
    bindings: as for ``run``.
    carried: (states, number, condition, sources, sinks), with bindings as indices. states:
        an input, and the output that is that input in the next turn; number: the input
        that is the turn's number (int64), or None; condition: the output whose first byte
        is 0 after the last turn, or None; sources: the inputs that are another row in each
        turn, with the rows; sinks: the bindings that are copied to a row after each turn,
        with the rows.
    first: the number of the first turn.
    most: the most turns.

Raises:
    ValueError: the program calls Python; a binding does not exist or is of several states;
        both sides of a state differ in size; there is too little memory for rows.
    TypeError, StepFailed, Stopped, Circular, RuntimeError: as for ``run``.)")
        .def_prop_ro("waiting", &PyTeam::waiting,
                     "The number of threads that wait for work of this team.")
        .def("close", &PyTeam::close,
             "End the thread after the step in progress; work in its queue raises Stopped.");
    nb::class_<Crowding>(m, "Crowding", nb::is_final(),
                         R"(An estimate of whether other processes use the processors, too.

It changes after several observations in a row: runs of teams observe now and then whether
their threads had to wait for a processor.)")
        .def(nb::init<>())
        .def(
            "observe",
            [](Crowding &self, bool crowded, std::int64_t waited) {
                return self.observe(crowded, std::chrono::nanoseconds(waited));
            },
            "crowded"_a, "waited"_a = 0,
            R"(Add an observation, and return the estimate.

It is True if other processes seem to use the processors. ``crowded``: whether a team had to
wait for processors; ``waited``: how long one of its threads waited, in nanoseconds.)")
        .def("observe_together", &Crowding::observe_together, "idle"_a, "held_up"_a,
             R"(Add an observation of two threads that share a processor; return the estimate.

``idle``: the part of the time, 0 to 1, in which the other processor was idle; below 0 if
unknown. ``held_up``: whether another process used the shared processor.)");
    m.def("share_processors", &say_shared, "shared"_a, "threads"_a,
          R"(Set whether other processes use the processors: if so, waiting threads sleep sooner.

Runs of teams may change it later. ``threads``: the team's number of threads.)");
    nb::class_<Pace>(m, "Pace", nb::is_final(),
                     R"(A schedule of runs under a CPU quota.

A run waits before it begins, so that the system does not stop it in its middle. Teams use
a schedule after ``limit_processors``.

Args:
    processors: how many processors the process may use, on average over each period.
    period: the period of the quota, in nanoseconds.

Raises:
    ValueError: ``processors`` or ``period`` is not above 0, or is infinite.)")
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
             R"(Return how long the next run has to wait before it begins, in nanoseconds.

Args:
    now: the time on any clock, in nanoseconds.
    used: the processor time that the process has used until then, in nanoseconds.
    threads: the run's number of threads.
    run: the time that the last run took, in nanoseconds.

Raises:
    ValueError: ``threads`` is out of range (1 to 1024), or ``run`` negative.)");
    m.def(
        "limit_processors",
        [](double processors, std::int64_t period) {
            limit_processors(processors, std::chrono::nanoseconds(period));
        },
        "processors"_a, "period"_a,
        R"(Set the CPU quota of this process, with which runs of all teams then comply.

``processors``: how many processors it may use, on average over each ``period``
(nanoseconds); infinity: no quota.

Raises:
    ValueError: ``processors`` or ``period`` is not above 0.)");
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_all));
}

}  // namespace vtensor::replay
