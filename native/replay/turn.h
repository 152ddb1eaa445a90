// native/replay/turn.h: one holder at a time, and nobody waits. No Python in here.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>

namespace vtensor::replay {

// A run cannot begin inside of another that has what it needs.
struct Busy : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The process of whoever has it; 0 where nobody does. A fork copies it, but not the holder's
// thread: what another process has is free here.
using Holder = std::atomic<pid_t>;

struct GiveBack {
    void operator()(Holder *holder) const { holder->store(0, std::memory_order_release); }
};

// Whoever has it is the only one until it is gone.
using Turn = std::unique_ptr<Holder, GiveBack>;

// Throws Busy if it is somebody's already.
inline Turn take_turn(Holder &holder, const char *refusal) {
    const pid_t self = getpid();
    pid_t before = holder.load(std::memory_order_relaxed);
    if (before == self || !holder.compare_exchange_strong(before, self, std::memory_order_acquire))
        throw Busy(refusal);
    return Turn(&holder);
}

}  // namespace vtensor::replay
