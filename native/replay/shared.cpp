// native/replay/shared.cpp: teams wait less where others use the processors too.
#include "shared.h"

#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "home.h"
#include "pace.h"

namespace vtensor::replay {

namespace {

using Clock = std::chrono::steady_clock;

// How long runs take between two looks; between two where both threads share a processor, since the
// system counts idle time in steps of 10 ms.
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
constexpr auto kBetweenLooksTogether = std::chrono::milliseconds(50);
// The part of that time for which a thread of ours has to wait, where others have their share.
constexpr int kPart = 8;
// What a run takes that is worth seats, which cost 8 us.
constexpr auto kWorthSeats = std::chrono::milliseconds(1);
// For how long others are seen until both threads share a processor: some task of the system may
// take one for 20 ms.
constexpr auto kCrowdedFor = std::chrono::milliseconds(40);
// How often in a row two that share a processor have to wait for others there as well, until they
// share it no longer.
constexpr int kHeldUp = 2;
// What it may take of a processor to ask how long one was idle, so often in a row: on a machine with
// hundreds of them it takes long.
constexpr long long kPatienceNs = 200'000;
constexpr int kSlowAnswers = 3;

// What a thread did, in nanoseconds.
struct Spent {
    long long ran = 0, waited = 0;  // waited for a processor
};

// What the calling thread has spent since it was asked last; nothing the first time, and where the
// system does not tell.
class Spends {
public:
    Spends() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
    ~Spends() {
        if (file_ >= 0) close(file_);
    }
    Spends(const Spends &) = delete;
    Spends &operator=(const Spends &) = delete;

    Spent more() {
        std::array<char, 96> text{};
        Spent all;
        if (file_ < 0 || pread(file_, text.data(), text.size() - 1, 0) <= 0) return {};
        if (std::sscanf(text.data(), "%lld %lld", &all.ran, &all.waited) != 2) return {};
        const Spent before = std::exchange(all_, all);
        if (before.ran < 0) return {};
        return {all.ran - before.ran, all.waited - before.waited};
    }

private:
    int file_;
    Spent all_{-1, -1};
};

// What the threads of the caller's team have spent.
struct TeamSpent {
    long long ran = 0;  // all of them together
    long long longest_wait = 0;
    bool second_waited_less = false;  // than the first
};

TeamSpent spent_by(int threads) {
    TeamSpent team;
    std::array<long long, 2> waited{};
#pragma omp parallel num_threads(threads)
    {
        thread_local Spends spends;
        const Spent spent = spends.more();
        const auto number = static_cast<std::size_t>(omp_get_thread_num());
        if (number < waited.size()) waited[number] = spent.waited;
#pragma omp critical(vtensor_team_spent)
        {
            team.ran += spent.ran;
            team.longest_wait = std::max(team.longest_wait, spent.waited);
        }
    }
    team.second_waited_less = waited[1] < waited[0];
    return team;
}

// The time for which the calling thread had a processor, in nanoseconds.
long long own_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// How long a processor was idle since the machine began, in nanoseconds; -1: not known.
long long idle_ns(int processor) {
    static const long tick = sysconf(_SC_CLK_TCK);
    static const int file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    static std::atomic<int> slow = 0;
    if (file < 0 || tick <= 0 || slow >= kSlowAnswers) return -1;
    std::array<char, 8192> text{};
    // By the clock a single answer may take milliseconds beside others, who are why it is asked.
    const long long begin = own_ns();
    if (pread(file, text.data(), text.size() - 1, 0) <= 0) return -1;
    slow = own_ns() - begin > kPatienceNs ? slow + 1 : 0;
    const std::string label = "\ncpu" + std::to_string(processor) + " ";
    const char *const line = std::strstr(text.data(), label.c_str());
    long long idle = 0, waits_for_disk = 0;
    if (line == nullptr || std::sscanf(line + label.size(), "%*d %*d %*d %lld %lld", &idle,
                                       &waits_for_disk) != 2)
        return -1;
    return (idle + waits_for_disk) * (1'000'000'000 / tick);
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
            if (startable(most_workers(threads)) < most_workers(threads)) {
                wanted_ = 0;  // waiting stays as it is
                break;
            }
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
    Seating seating() const {
        const int place = place_;
        if (place == kApart) return Seating::kApart;
        return place < 0 || process_ != getpid() ? Seating::kAnywhere : Seating::kTogether;
    }
    // The processor of both threads, where they share one.
    int together() const { return place_; }

    // A team of so many threads has worked for so long, on these seats; to be called on its first.
    // `idle`: for how long the processor was, meanwhile, that was left to others; -1: not known.
    void after(int threads, std::chrono::nanoseconds time, const Seated *seats, long long idle) {
        const std::unique_lock lock(guard_, std::try_to_lock);
        if (!lock) return;
        const bool together = seats != nullptr && seats->left() >= 0;
        if (std::exchange(together_, together) != together) time_ = {}, idle_ = 0;
        time_ += time;
        idle_ = idle < 0 || idle_ < 0 ? -1 : idle_ + idle;
        if (time_ < (together ? kBetweenLooksTogether : kBetweenLooks) || process_ != getpid())
            return;
        const long long all = std::exchange(time_, {}).count();
        const double idled = double(std::exchange(idle_, 0)) / double(all);
        const bool idles = idled > Crowding::kIdle;
        const TeamSpent team = spent_by(threads);
        const bool was = crowding_.shared();
        if (together) {
            const bool held_up = team.ran * kPart < all * (kPart - 1);
            held_up_ = held_up && !idles ? held_up_ + 1 : 0;
            crowding_.observe_together(idled, held_up);
            if (held_up && idles) place_ = seats->left();  // others are on ours
            if (held_up_ >= kHeldUp) {  // only apart do waits say whether others are there
                place_ = kApart;
                crowded_ = held_up_ = 0;
            }
        } else {
            const bool crowded = team.longest_wait * kPart > all;
            // A quota stops threads, which looks as if they had to wait for as long.
            const bool stopped = has_quota();
            const long long waited = stopped ? 0 : std::min(team.longest_wait, all);
            crowding_.observe(crowded, std::chrono::nanoseconds(waited));
            const bool shared = stopped ? was : crowding_.shared();
            crowded_ = crowded && shared ? crowded_ + all : 0;
        }
        if (crowding_.shared() != was) {
            share_processors(!was, threads);
            place_ = kApart;
            held_up_ = 0;
        }
        if (!crowding_.shared()) crowded_ = 0;
        if (!together && seats && crowded_ >= std::chrono::nanoseconds(kCrowdedFor).count())
            place_ = seats->of(team.second_waited_less ? 1 : 0);
    }

    // What somebody knows better. Nobody waits for the guard: a forked child may have it taken.
    void told(bool shared, int threads) {
        const std::unique_lock lock(guard_, std::try_to_lock);
        if (lock && !shared) crowding_ = Crowding();
        place_ = shared ? kAnywhere : kApart;
        share_processors(shared, threads);
    }

private:
    static constexpr int kAnywhere = -1, kApart = -2;

    std::mutex guard_;
    Crowding crowding_;
    std::chrono::nanoseconds time_{};
    long long idle_ = 0;
    bool together_ = false;
    long long crowded_ = 0;  // nanoseconds, of looks in a row
    int held_up_ = 0;        // looks in a row
    std::atomic<int> place_ = kApart;
    // A forked child has its parent's counts in libgomp, and none of the threads.
    const pid_t process_ = getpid();
};

// What the calling thread's last run took: the next one is mostly another of the same. A first one
// takes long: nothing is in caches, and the team's threads are where they were made.
thread_local std::chrono::nanoseconds last_run = kWorthSeats;

Looks &looks() {
    static auto &all = *new Looks();
    return all;
}

}  // namespace

bool Crowding::observe(bool crowded, std::chrono::nanoseconds waited) {
    against_ = crowded == shared_ ? 0 : against_ + 1;
    waited_ = against_ == 0 ? std::chrono::nanoseconds{} : waited_ + waited;
    looks_ = std::min(looks_ + 1, kMostPatient);
    if (!shared_ && looks_ >= kTry) {  // they had gone
        patience_ = kTry;
        begin_ = kBegin;
    }
    const bool tried = shared_ && looks_ >= patience_;
    if (tried) {
        patience_ = std::min(2 * patience_, kMostPatient);
        begin_ = kAgain;
    }
    const int begin = waited_ > kLong ? kAgain : begin_;
    if (tried || against_ >= (shared_ ? kEnd : begin)) {
        shared_ = !shared_;
        against_ = looks_ = 0;
        waited_ = {};
    }
    return shared_;
}

bool Crowding::observe_together(double idle, bool held_up) {
    if (idle > kIdle && !held_up) {
        *this = Crowding();
        return false;
    }
    // There is little to try; yet who has what is left of it may give way to a team.
    if (0 <= idle && idle < kHardly && ++uncounted_ < kFew) return shared_;
    uncounted_ = 0;
    return observe(true);
}

void share_processors(bool shared, int threads) {
    static auto &idlers = *new Idlers();
    const int missing = std::max(0, omp_get_num_procs() - threads) + 2;  // with the team's own
    idlers.want(shared && missing <= threads ? missing : 0);
}

void say_shared(bool shared, int threads) { looks().told(shared, threads); }

Working::Working(int threads, bool calls_python) : threads_(threads) {
    keep_pace(threads, last_run);
    static const bool given = std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY");
    if (given) threads_ = 1;
    if (threads_ > 1 && !calls_python && last_run >= kWorthSeats)
        seated_.emplace(threads_, looks().seating(), looks().together());
    if (seated_ && seated_->left() >= 0) idle_ = idle_ns(seated_->left());
    begin_ = Clock::now();
}

Working::~Working() {
    last_run = Clock::now() - begin_;
    if (threads_ <= 1) return;
    const bool sat = seated_ && seated_->of(0) >= 0;
    const long long idle = idle_ < 0 ? -1 : idle_ns(seated_->left());
    if (seated_) seated_->stand();  // threads that begin now inherit nothing
    looks().after(threads_, last_run, sat ? &*seated_ : nullptr, idle < 0 ? -1 : idle - idle_);
}

}  // namespace vtensor::replay
