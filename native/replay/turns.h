// native/replay/turns.h: a program that is run turn after turn, as the body of a loop. No Python in
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "program.h"

namespace vtensor::replay {

// A binding, and memory with a row of as many bytes for each turn.
struct Rows {
    std::size_t binding;
    Memory memory;
};

// What happens between two turns. Bindings are given by their indices.
struct Carried {
    // An input and the output that is that input in the next turn: they change places.
    std::vector<std::pair<std::size_t, std::size_t>> states;
    std::optional<std::size_t> number;     // the input that is the turn's number, of 64 bits
    std::optional<std::size_t> condition;  // the output whose first byte is 0 after the last turn
    std::vector<Rows> sources;             // the inputs that are a row in each turn
    std::vector<Rows> sinks;               // the bindings that are copied to a row after each turn
};

class Turns {
public:
    // At most `most` turns. Throws std::invalid_argument if a binding does not exist or is of
    // several states, both sides of a state differ in size, or memory is too small. The memory of
    // inputs that are carried must be writable.
    Turns(Program &program, std::vector<Memory> bindings, Carried carried, std::int64_t most);

    // Runs turns until the condition is 0, or for about 50 ms; the first one has the number `first`.
    // Throws as Program::run.
    void run(std::int64_t first, Stop &stop);

    std::int64_t done() const { return done_; }
    // Returns whether the condition would let a further turn follow.
    bool goes_on() const { return goes_on_; }

private:
    void check() const;

    Program &program_;
    std::vector<Memory> bindings_;
    Carried carried_;
    std::int64_t most_, done_ = 0;
    bool goes_on_ = true;
};

}  // namespace vtensor::replay
