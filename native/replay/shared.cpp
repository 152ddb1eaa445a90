// native/replay/shared.cpp: teams wait less where others use the processors too.
#include "shared.h"

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "home.h"

namespace vtensor::replay {

namespace {

using Clock = std::chrono::steady_clock;

// How long runs take between two looks.
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
// The part of that time for which a thread of ours has to wait, where others have their share.
constexpr int kPart = 8;

// How long the calling thread has waited for a processor since it was asked last; no time the first
// time, and where the system does not tell.
class Waited {
public:
    Waited() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
    ~Waited() {
        if (file_ >= 0) close(file_);
    }
    Waited(const Waited &) = delete;
    Waited &operator=(const Waited &) = delete;

    long long more() {
        std::array<char, 96> text{};
        long long all = 0;  // nanoseconds, behind those for which it ran
        if (file_ < 0 || pread(file_, text.data(), text.size() - 1, 0) <= 0) return 0;
        if (std::sscanf(text.data(), "%*d %lld", &all) != 1) return 0;
        const long long before = std::exchange(all_, all);
        return before < 0 ? 0 : all - before;
    }

private:
    int file_;
    long long all_ = -1;
};

// How long a thread of the caller's team has waited for a processor, the one that waited longest.
long long longest_wait(int threads) {
    long long longest = 0;
#pragma omp parallel num_threads(threads) reduction(max : longest)
    {
        thread_local Waited waited;
        longest = waited.more();
    }
    return longest;
}

// The team that has nothing to do, and its thread. Never destroyed: the thread may outlive main.
class Idlers {
public:
    // A team of so many threads; 0: none.
    void want(int wanted) {
        const std::scoped_lock lock(guard_);
        wanted_ = wanted;
        changed_.notify_all();
        if (wanted == 0 || serving_) return;
        try {
            std::thread([this] { serve(); }).detach();
            serving_ = true;
        } catch (const std::system_error &) {
            wanted_ = 0;  // no thread to be had: waiting stays as it is
        }
    }

private:
    void serve() {
        std::unique_lock lock(guard_);
        while (const int threads = wanted_) {
            // libgomp counts them until the team ends. The barrier is there so that the region is
            // not empty.
#pragma omp parallel num_threads(threads)
            {
#pragma omp barrier
            }
            changed_.wait(lock, [this] { return wanted_ == 0; });
            end_team();
        }
        serving_ = false;
    }

    std::mutex guard_;
    std::condition_variable changed_;
    int wanted_ = 0;
    bool serving_ = false;
};

// What the process knows of others. Who would have to wait for its turn does not look.
class Looks {
public:
    // A team of so many threads has worked for so long; to be called on its first.
    void after(int threads, std::chrono::nanoseconds time) {
        const std::unique_lock lock(guard_, std::try_to_lock);
        if (!lock) return;
        time_ += time;
        if (time_ < kBetweenLooks || process_ != getpid()) return;
        const bool was = crowding_.shared();
        const bool crowded = longest_wait(threads) * kPart > std::exchange(time_, {}).count();
        if (crowding_.observe(crowded) != was) share_processors(!was, threads);
    }

    // What somebody knows better. Nobody waits for the guard: a forked child may have it taken.
    void told(bool shared, int threads) {
        const std::unique_lock lock(guard_, std::try_to_lock);
        if (lock && !shared) crowding_ = Crowding();
        share_processors(shared, threads);
    }

private:
    std::mutex guard_;
    Crowding crowding_;
    std::chrono::nanoseconds time_{};
    // A forked child has its parent's counts in libgomp, and none of the threads.
    const pid_t process_ = getpid();
};

Looks &looks() {
    static auto &all = *new Looks();
    return all;
}

}  // namespace

bool Crowding::observe(bool crowded) {
    against_ = crowded == shared_ ? 0 : against_ + 1;
    looks_ = std::min(looks_ + 1, kMostPatient);
    if (!shared_ && looks_ >= kTry) patience_ = kTry;  // they had gone
    const bool tried = shared_ && looks_ >= patience_;
    if (tried) patience_ = std::min(2 * patience_, kMostPatient);
    if (tried || against_ >= (shared_ ? kEnd : kBegin)) {
        shared_ = !shared_;
        against_ = looks_ = 0;
    }
    return shared_;
}

void share_processors(bool shared, int threads) {
    static auto &idlers = *new Idlers();
    const int missing = std::max(0, omp_get_num_procs() - threads) + 2;  // with the team's own
    idlers.want(shared && missing <= threads ? missing : 0);
}

void say_shared(bool shared, int threads) { looks().told(shared, threads); }

Working::Working(int threads) : threads_(threads) {
    static const bool given = std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY");
    if (given) threads_ = 1;
    if (threads_ > 1) begin_ = Clock::now();
}

Working::~Working() {
    if (threads_ > 1) looks().after(threads_, Clock::now() - begin_);
}

}  // namespace vtensor::replay
