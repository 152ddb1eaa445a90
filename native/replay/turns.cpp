// native/replay/turns.cpp: a program that is run turn after turn, as the body of a loop. No Python
// in here.
#include "turns.h"

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

namespace vtensor::replay {

namespace {

// The time after which the caller decides whether further turns run.
constexpr std::chrono::milliseconds kPatience{50};

[[noreturn]] void fail(const std::string &message) { throw std::invalid_argument(message); }

}  // namespace

Turns::Turns(Program &program, std::vector<Memory> bindings, Carried carried, std::int64_t most)
    : program_(program),
      bindings_(std::move(bindings)),
      carried_(std::move(carried)),
      most_(most) {
    check();
}

void Turns::check() const {
    const auto bytes = [this](std::size_t binding) {
        if (binding >= bindings_.size())
            fail("binding " + std::to_string(binding) + " of a loop, which has " +
                 std::to_string(bindings_.size()));
        return bindings_[binding].bytes;
    };
    std::vector<bool> taken(bindings_.size());
    for (const auto &[input, output] : carried_.states) {
        if (bytes(input) != bytes(output)) fail("a state has another size after a turn");
        for (const std::size_t side : {input, output}) {
            if (taken[side]) fail("binding " + std::to_string(side) + " is of several states");
            taken[side] = true;
        }
    }
    if (carried_.number && bytes(*carried_.number) != sizeof(std::int64_t))
        fail("the number of a turn has not 8 bytes");
    if (carried_.condition && bytes(*carried_.condition) == 0) fail("the condition has no byte");
    for (const auto *rows : {&carried_.sources, &carried_.sinks})
        for (const auto &[binding, memory] : *rows)
            if (const std::size_t each = bytes(binding);
                most_ > 0 && memory.bytes / static_cast<std::uint64_t>(most_) < each)
                fail("memory for " + std::to_string(most_) + " rows of " + std::to_string(each) +
                     " bytes has " + std::to_string(memory.bytes));
}

void Turns::run(std::int64_t first, Stop &stop) {
    const auto row = [this](const Rows &rows) {
        return static_cast<std::byte *>(rows.memory.address) +
               static_cast<std::size_t>(done_) * bindings_[rows.binding].bytes;
    };
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + kPatience;
    while (goes_on_ && done_ < most_ && (done_ == 0 || Clock::now() < end)) {
        stop.check();
        if (carried_.number) {
            const std::int64_t number = first + done_;
            std::memcpy(bindings_[*carried_.number].address, &number, sizeof number);
        }
        for (const Rows &source : carried_.sources) {
            const auto &[address, bytes] = bindings_[source.binding];
            if (bytes > 0) std::memcpy(address, row(source), bytes);
        }
        program_.run({bindings_, {}, nullptr}, stop, nullptr);
        for (const Rows &sink : carried_.sinks) {
            const auto &[address, bytes] = bindings_[sink.binding];
            if (bytes > 0) std::memcpy(row(sink), address, bytes);
        }
        if (carried_.condition)
            goes_on_ = *static_cast<const std::uint8_t *>(bindings_[*carried_.condition].address);
        for (const auto &[input, output] : carried_.states)
            std::swap(bindings_[input], bindings_[output]);
        ++done_;
    }
}

}  // namespace vtensor::replay
