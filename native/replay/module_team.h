// native/replay/module_team.h: Team as Python sees it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "module_crew.h"

namespace vtensor::replay {

// Bindings with the buffers of their rows.
using GivenRows = std::vector<std::pair<std::size_t, nb::object>>;
// What a loop carries, as Python gives it: see Carried.
using GivenCarried =
    std::tuple<std::vector<std::pair<std::size_t, std::size_t>>, std::optional<std::size_t>,
               std::optional<std::size_t>, GivenRows, GivenRows>;

// A thread with a queue and an OpenMP team.
class PyTeam {
public:
    PyTeam(int threads, const std::string &name, nb::object waits_for_caller);
    ~PyTeam() {
        if (!shutting_down()) close();  // else the thread could not end: it needs the lock
    }
    PyTeam(const PyTeam &) = delete;
    PyTeam &operator=(const PyTeam &) = delete;

    nb::object call(nb::callable function);
    bool run(PyProgram &program, nb::sequence bindings, nb::object times, const Sizes &sizes,
             nb::object queue, const GivenExponents &looked_for);
    // Replays with buffers that were acquired and checked before.
    bool replay(PyProgram &program, const Bindings &bound, const Exponents &exponents,
                const Given &given);
    // Runs a program turn after turn; returns the number of turns, and whether the condition would
    // let a further one follow.
    std::pair<std::int64_t, bool> repeat(PyProgram &program, nb::sequence bindings,
                                         const GivenCarried &carried, std::int64_t first,
                                         std::int64_t most);
    bool is_of_this_process() const { return crew_->is_of_this_process(); }
    int waiting() const { return crew_->waiting; }
    void close();

private:
    Crew &own() const;
    // Executes work of a program on the team's thread, or on the calling thread, which waits for it
    // without the interpreter's lock.
    void execute(const PyProgram &program, const std::function<void(Stop &)> &work);

    std::shared_ptr<Crew> crew_;
    nb::object waits_for_caller_;
};

}  // namespace vtensor::replay
