// native/replay/module_team.h: Team as Python sees it.
#pragma once

#include <memory>
#include <string>

#include "module_crew.h"

namespace vtensor::replay {

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
    bool is_of_this_process() const { return crew_->is_of_this_process(); }
    int waiting() const { return crew_->waiting; }
    void close();

private:
    Crew &own() const;

    std::shared_ptr<Crew> crew_;
    nb::object waits_for_caller_;
};

}  // namespace vtensor::replay
