// native/replay/home.cpp: inline execution: whether a program runs on its caller's thread.
#include "home.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>
#include <vector>

#include "seats.h"
#include "thread.h"

namespace vtensor::replay {

namespace {

// Upper bound of the number of successive runs by one thread before it executes steps itself.
constexpr int kMost = 1 << 20;

thread_local bool has_team = false;

// Ends the forking thread's team: the child would have this thread only and wait for its team
// forever.
void before_fork() {
    if (Home::leave()) end_team();
}

}  // namespace

void end_team() {
    forget_second();
    omp_pause_resource_all(omp_pause_soft);
}

int startable(int wanted) {
    std::vector<std::thread> threads;
    std::atomic<bool> over = false;
    try {
        while (static_cast<int>(threads.size()) < wanted)
            threads.emplace_back([&over] { over.wait(false); });
    } catch (const std::exception &) {  // no more threads, or no memory
    }
    over = true;
    over.notify_all();
    for (std::thread &thread : threads) thread.join();
    return static_cast<int>(threads.size());
}

bool Home::is_here(int processors) {
    const std::thread::id self = std::this_thread::get_id();
    if (self != last_) {
        if (home_ != std::thread::id()) enough_ = std::min(2 * enough_, kMost);
        home_ = {};
        last_ = self;
        in_a_row_ = 0;
    }
    if (home_ == self) return true;
    in_a_row_ = std::min(in_a_row_ + 1, kMost + 1);
    if (in_a_row_ <= enough_ || !has_processors(processors)) return false;
    home_ = self;
    return true;
}

void Home::refuse() {
    home_ = {};
    enough_ = kMost + 1;
}

bool Home::leave() { return std::exchange(has_team, false); }

void Home::enter() {
    static const int registered = pthread_atfork(&before_fork, nullptr, nullptr);
    has_team = registered == 0;
}

}  // namespace vtensor::replay
