// native/replay/stop.h: what ends a run between two steps. No Python in here.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "runner.h"

namespace vtensor::replay {

class Stop {
public:
    // Stops once `flag` is true. `look` is called every kPatience; an exception of it ends the run,
    // too.
    explicit Stop(const std::atomic<bool> &flag, std::function<void()> look = {})
        : flag_(flag), look_(std::move(look)), next_(look_ ? now() + kPatience : 0) {}

    // Throws Stopped, or what `look` throws.
    void check() {
        if (flag_.load(std::memory_order_relaxed)) throw Stopped("the run was stopped");
        if (!look_ || now() < next_) return;
        look_();
        next_ = now() + kPatience;
    }

private:
    static constexpr std::int64_t kPatience = 50'000'000;  // nanoseconds

    static std::int64_t now() {
#ifdef CLOCK_MONOTONIC_COARSE
        constexpr clockid_t clock = CLOCK_MONOTONIC_COARSE;  // a few nanoseconds: for every step
#else
        constexpr clockid_t clock = CLOCK_MONOTONIC;
#endif
        timespec time{};
        clock_gettime(clock, &time);
        return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
    }

    const std::atomic<bool> &flag_;
    std::function<void()> look_;
    std::int64_t next_;
};

}  // namespace vtensor::replay
