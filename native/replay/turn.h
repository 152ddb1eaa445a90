// native/replay/turn.h: exclusive use without waiting. No Python in here.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>

namespace vtensor::replay {

// A run cannot begin, since another run has what it needs.
struct Busy : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The process id of the holder, 0 if there is none. A fork copies it, but not the holder's thread:
// another process' id counts as free.
using Holder = std::atomic<pid_t>;

struct GiveBack {
    void operator()(Holder *holder) const { holder->store(0, std::memory_order_release); }
};

// Exclusive use, until it is destroyed.
using Turn = std::unique_ptr<Holder, GiveBack>;

// Takes the turn. Throws Busy with `refusal` if it is taken.
inline Turn take_turn(Holder &holder, const char *refusal) {
    const pid_t self = getpid();
    pid_t before = holder.load(std::memory_order_relaxed);
    if (before == self || !holder.compare_exchange_strong(before, self, std::memory_order_acquire))
        throw Busy(refusal);
    return Turn(&holder);
}

}  // namespace vtensor::replay
