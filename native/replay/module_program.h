// native/replay/module_program.h: Program as Python sees it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "module.h"
#include "program.h"

namespace vtensor::replay {

// A program, and the Python objects that it needs.
class PyProgram {
public:
    using Slots = std::vector<std::pair<std::size_t, std::size_t>>;
    using Steps = std::vector<std::pair<nb::object, Slots>>;
    using StepSizes = std::map<std::size_t, std::vector<std::size_t>>;

    PyProgram(const std::vector<nb::object> &regions, const Steps &steps, std::size_t size_count,
              const StepSizes &step_sizes, bool repeatable);
    PyProgram(const PyProgram &) = delete;
    PyProgram &operator=(const PyProgram &) = delete;

    Program &program() { return program_; }
    bool calls_python() const { return !callables_.empty(); }
    // Visits every Python object that is held, for Python's garbage collector; see tp_traverse.
    int traverse(visitproc visit, void *arg) const;
    void clear();

private:
    std::vector<Source> sources(const std::vector<nb::object> &regions);
    std::vector<RecordedStep> recorded(const Steps &steps, const StepSizes &step_sizes);

    Buffers constants_;
    std::vector<nb::object> callables_;
    Program program_;
};

// The buffers of one run of a program, acquired and checked with the interpreter's lock held.
class Bindings {
public:
    Bindings(const Program &program, nb::sequence buffers, nb::handle times);
    // Starts without buffers; `count` of them are added one by one.
    Bindings(const Program &program, std::size_t count) : program_(program), buffers_(count) {}

    void add(const Py_buffer &view, const Memory &memory) { buffers_.add(view, memory); }

    std::span<const Memory> memory() const { return buffers_.memory(); }
    std::span<const Py_buffer> views() const { return buffers_.views(); }
    // Returns whether all numbers are finite, in the memory that steps write or in that which they
    // only read.
    bool all_finite(const Exponents &exponents, bool written) const;
    std::int64_t *times() const { return times_; }

private:
    const Program &program_;
    Buffers buffers_, clock_;
    std::int64_t *times_ = nullptr;
};

}  // namespace vtensor::replay
