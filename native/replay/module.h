// native/replay/module.h: what the files of the Python module share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "finite.h"
#include "runner.h"
#include "vtensor/interpreter.h"

namespace nb = nanobind;

namespace vtensor::replay {

// A step together with the capsule that keeps it alive.
struct HeldStep {
    nb::object capsule;
    const vtensor_step &step;
};

// Whether an object offers a step, right or wrong.
bool offers_step(nb::handle object);
// The checked step of an object; TypeError or ValueError.
HeldStep hold(nb::handle object);

// A run's sizes as Python gives them.
using Sizes = std::vector<std::int64_t>;

// What is in a capsule of a queue, null for None; TypeError.
void *queue_in(nb::handle object);

// Memory of Python objects, which neither moves nor shrinks while it is in here.
class Buffers {
public:
    explicit Buffers(std::size_t expected = 0) { views_.reserve(expected); }
    ~Buffers();
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;

    // TypeError without a buffer, ValueError if it is not contiguous or not writable.
    void add(nb::handle object, bool writable, const std::string &label);
    // What somebody has taken already, and hands over: so many bytes from there on.
    void add(const Py_buffer &view, const Memory &memory) {
        views_.push_back(view);
        memory_.push_back(memory);
    }
    std::span<const Memory> memory() const { return memory_; }
    std::span<const Py_buffer> views() const { return views_; }

private:
    std::vector<Py_buffer> views_;
    std::vector<Memory> memory_;
};

// Of the elements of some memories, as Python gives them.
using Exponents = std::vector<Exponent>;
// ValueError unless there are none or one for each, and each is of 1, 2, 4 or 8 bytes.
using GivenExponents = std::vector<std::pair<std::size_t, std::uint64_t>>;
Exponents exponents_in(const GivenExponents &given, std::size_t count);

void bind_aside(nb::module_ &m);
void bind_program(nb::module_ &m);
void bind_request(nb::module_ &m);
void bind_team(nb::module_ &m);

}  // namespace vtensor::replay
