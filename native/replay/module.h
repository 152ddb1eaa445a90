// native/replay/module.h: declarations shared by the files of the Python module.
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

// Returns whether an object offers a step, valid or not.
bool offers_step(nb::handle object);
// Returns the checked step of an object. Throws TypeError or ValueError.
HeldStep hold(nb::handle object);

// A run's sizes as Python gives them.
using Sizes = std::vector<std::int64_t>;

// Returns the queue in a capsule, null for None. Throws TypeError.
void *queue_in(nb::handle object);

// Memory of Python objects, which neither moves nor shrinks while this holds it.
class Buffers {
public:
    explicit Buffers(std::size_t expected = 0) { views_.reserve(expected); }
    ~Buffers();
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;

    // Adds an object's buffer. Throws TypeError if it has none, ValueError if it is not contiguous
    // or not writable.
    void add(nb::handle object, bool writable, const std::string &label);
    // Takes over a buffer that the caller has acquired; `memory`: the part of it that is used.
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

// The exponents of the element types of several memories.
using Exponents = std::vector<Exponent>;
// Exponents as Python gives them: bytes of an element, and bits.
using GivenExponents = std::vector<std::pair<std::size_t, std::uint64_t>>;
// Converts them. Throws ValueError unless there are none or `count`, each of 1, 2, 4 or 8 bytes.
Exponents exponents_in(const GivenExponents &given, std::size_t count);

void bind_aside(nb::module_ &m);
void bind_program(nb::module_ &m);
void bind_request(nb::module_ &m);
void bind_request_tree(nb::module_ &m);
void bind_team(nb::module_ &m);

}  // namespace vtensor::replay
