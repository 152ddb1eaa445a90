// native/replay/pace.cpp: runs wait for their CPU quota before they begin.
#include "pace.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

namespace vtensor::replay {

namespace {

using std::chrono::nanoseconds;

// The quota of one process. A forked child may find its parent's guard locked forever, so that it
// makes its own.
struct Paced {
    const pid_t process = getpid();
    std::mutex guard;
    std::optional<Pace> pace;
};

// Whether the process has a quota; without one nothing else is read.
std::atomic<bool> limited = false;

// Returns this process' quota. Never destroyed: threads may outlive main.
Paced &paced() {
    static std::atomic<Paced *> own = new Paced();
    Paced *found = own;
    if (found->process == getpid()) return *found;
    auto made = std::make_unique<Paced>();
    made->pace = found->pace;  // a copy: a run of the parent may have been changing it
    if (own.compare_exchange_strong(found, made.get())) return *made.release();
    return *found;
}

nanoseconds clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

}  // namespace

Pace::Pace(double processors, nanoseconds period)
    : processors_(processors), period_(static_cast<double>(period.count())) {
    if (!(processors > 0) || !std::isfinite(processors) || period.count() <= 0)
        throw std::invalid_argument("a quota is of more than no processors, and of a period");
}

nanoseconds Pace::wait(nanoseconds now, nanoseconds used, int threads, nanoseconds run) {
    const bool larger = threads > processors_;
    const double rate = larger ? kPart * processors_ : processors_;
    const double most =
        kMost * period_ *
        (larger ? std::min(processors_, kLacks * (threads - processors_)) : processors_);
    const double passed = static_cast<double>(now.count()) - now_;
    const double spent = static_cast<double>(used.count()) - used_;
    now_ += passed;
    used_ += spent;
    // A process that was idle may use up a whole period's quota. A stopped run counts as idle, too,
    // but what that saved is void in the next period.
    const auto last = static_cast<double>(run.count());
    const double all = std::max(most, processors_ * period_ * (larger ? 1 - rate / threads : 1));
    const double rested = std::clamp(rate * (passed - last), most, all);
    const double sum = saved_ + rate * passed - spent;
    saved_ = std::clamp(sum, -most, std::min(all, std::max(rested, std::min(saved_, sum))));
    const double takes = std::min(last, spent / threads);  // without the time of a stop
    // If the quota stops each run anyway, waiting before it gains nothing.
    if (larger && takes >= period_ * (1 - processors_ / threads)) return {};
    const double needs = std::min(most, std::max(0.0, threads - rate) * takes);
    if (saved_ >= needs) return {};
    const double wanted = std::min(most, kRuns * needs);
    return nanoseconds(static_cast<long long>((wanted - saved_) / rate));
}

void limit_processors(double processors, nanoseconds period) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const Pace pace(processors == kNone ? 1 : processors, period);
    Paced &own = paced();
    const std::scoped_lock lock(own.guard);
    if (own.pace && own.pace->is_of(processors, period)) return;  // keeps the state of current runs
    own.pace.reset();
    if (processors != kNone) own.pace = pace;
    limited = own.pace.has_value();
}

bool has_quota() { return limited; }

void keep_pace(int threads, nanoseconds run) {
    if (!limited) return;
    Paced &own = paced();
    nanoseconds wait{};
    {
        const std::scoped_lock lock(own.guard);
        if (own.pace)
            wait = own.pace->wait(clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                                  threads, run);
    }
    if (wait.count() > 0) std::this_thread::sleep_for(wait);
}

}  // namespace vtensor::replay
