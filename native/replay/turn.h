// native/replay/turn.h: one holder at a time, and nobody waits. No Python in here.
#pragma once

#include <atomic>
#include <memory>
#include <stdexcept>

namespace vtensor::replay {

struct GiveBack {
    void operator()(std::atomic<bool> *taken) const {
        taken->store(false, std::memory_order_release);
    }
};

// Whoever has it is the only one until it is gone.
using Turn = std::unique_ptr<std::atomic<bool>, GiveBack>;

// Throws std::runtime_error if it is somebody's already.
inline Turn take_turn(std::atomic<bool> &taken, const char *refusal) {
    if (taken.exchange(true, std::memory_order_acquire)) throw std::runtime_error(refusal);
    return Turn(&taken);
}

}  // namespace vtensor::replay
