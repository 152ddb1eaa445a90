// native/replay/pace.cpp: runs at the pace that a quota of processors allows.
#include "pace.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace vtensor::replay {

namespace {

using std::chrono::nanoseconds;

// What the process knows of its quota.
struct Quota {
    std::mutex guard;
    Pace pace{1, nanoseconds(1)};
    std::atomic<bool> limited = false;
};

Quota &quota() {
    static auto &own = *new Quota();
    return own;
}

nanoseconds clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

}  // namespace

Pace::Pace(double processors, nanoseconds period)
    : processors_(processors), period_(static_cast<double>(period.count())) {
    if (!(processors > 0) || period.count() <= 0)
        throw std::invalid_argument("a quota is of more than no processors, and of a period");
}

nanoseconds Pace::wait(nanoseconds now, nanoseconds used, int threads, nanoseconds run) {
    const bool larger = threads > processors_;
    const double rate = larger ? kPart * processors_ : processors_;
    // What was saved is used up beside the quota, and so is a part of what a team would lack.
    const double most =
        kMost * period_ *
        (larger ? std::min(processors_, kLacks * (threads - processors_)) : processors_);
    const auto passed = static_cast<double>((now - now_).count());
    const auto spent = static_cast<double>((used - used_).count());
    now_ = now;
    used_ = used;
    saved_ = std::clamp(saved_ + rate * passed - spent, -most, most);
    const auto takes = static_cast<double>(run.count());
    // Where each run is stopped anyway, to wait before it gains nothing.
    if (larger && takes >= period_ * (1 - processors_ / threads)) return {};
    const double needs = std::min(most, std::max(0.0, threads - rate) * takes);
    if (saved_ >= needs) return {};
    const double wanted = std::min(most, kRuns * needs);
    return nanoseconds(static_cast<long long>((wanted - saved_) / rate));
}

void limit_processors(double processors, nanoseconds period) {
    const bool limited = !std::isinf(processors);
    const Pace pace(limited ? processors : 1, period);
    const std::scoped_lock lock(quota().guard);
    quota().pace = pace;
    quota().limited = limited;
}

void keep_pace(int threads, nanoseconds run) {
    Quota &own = quota();
    if (!own.limited) return;
    nanoseconds wait{};
    {
        // A forked child may have it taken for ever: nobody waits for it.
        const std::unique_lock lock(own.guard, std::try_to_lock);
        if (!lock) return;
        wait = own.pace.wait(clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID), threads,
                             run);
    }
    if (wait.count() > 0) std::this_thread::sleep_for(wait);
}

}  // namespace vtensor::replay
