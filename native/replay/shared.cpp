// native/replay/shared.cpp: teams spin less while other processes use the processors.
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

// Run time between two looks (observations): with each thread on a processor of its own; and with
// both on one, when idle time is looked at, which the system counts in units of 10 ms.
constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
constexpr auto kBetweenLooksTogether = std::chrono::milliseconds(50);
// A team is crowded if a thread waits for a processor for more than 1 / kPart of the run time.
constexpr int kPart = 8;
// Shortest run for which pinning pays: it costs about 8 us.
constexpr auto kWorthSeats = std::chrono::milliseconds(1);
// How long a team is crowded before both threads share a processor: a system task may take a
// processor for 20 ms.
constexpr auto kCrowdedFor = std::chrono::milliseconds(40);
// Number of looks in a row at which two threads on one processor wait for others there, until they
// are separated.
constexpr int kHeldUp = 2;
// Most CPU time of a read of a processor's idle time, and the number of slower reads in a row after
// which it is not read any more: with hundreds of processors it is slow.
constexpr long long kPatienceNs = 200'000;
constexpr int kSlowAnswers = 3;

// CPU time and waiting time of a thread, in nanoseconds.
struct Spent {
    long long ran = 0, waited = 0;  // waited: for a processor
};

// Reads what the calling thread has spent since the last call; zeros at the first call, and if the
// system does not report it.
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

// What the threads of the calling thread's team have spent.
struct TeamSpent {
    long long ran = 0;  // summed over the threads
    long long longest_wait = 0;
    bool second_waited_less = false;  // less than the first
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

// Returns the CPU time of the calling thread, in nanoseconds.
long long own_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Returns the idle time of a processor since the machine started, in nanoseconds; -1 if unknown.
long long idle_ns(int processor) {
    static const long tick = sysconf(_SC_CLK_TCK);
    static const int file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    static std::atomic<int> slow = 0;
    if (file < 0 || tick <= 0 || slow >= kSlowAnswers) return -1;
    std::array<char, 8192> text{};
    // CPU time, since by the clock one read may take milliseconds next to other processes.
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

// An idle OpenMP team and its thread, which make libgomp spin less. Never destroyed: the thread may
// outlive main.
class Idlers {
public:
    // Keeps an idle team of this many threads; 0 for none.
    void want(int wanted) {
        const std::scoped_lock lock(guard_);
        wanted_ = wanted;
        changed_.notify_all();
        if (wanted == 0 || serving_) return;
        try {
            std::thread([this] { serve(); }).detach();
            serving_ = true;
        } catch (const std::system_error &) {
            wanted_ = 0;  // without a thread, teams spin as before
        }
    }

private:
    void serve() {
        std::unique_lock lock(guard_);
        while (const int threads = wanted_) {
            if (startable(most_workers(threads)) < most_workers(threads)) {
                wanted_ = 0;  // teams spin as before
                break;
            }
            // libgomp counts the threads until the team ends. The barrier keeps the region from
            // being empty.
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

// The looks of this process (see Crowding), and where they made teams run. A thread that finds the
// guard taken skips its look.
class Looks {
public:
    Seating seating() const {
        const int place = place_;
        if (place == kApart) return Seating::kApart;
        return place < 0 || process_ != getpid() ? Seating::kAnywhere : Seating::kTogether;
    }
    // Returns the processor that both threads share, if they do.
    int together() const { return place_; }

    // Records that a team has worked for `time`; called on its first thread. seats: how it was
    // pinned; null if it was not. idle: idle time, meanwhile, of the processor that is left to
    // other processes; -1 if unknown.
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
            if (held_up && idles) place_ = seats->left();  // other processes are on ours
            if (held_up_ >= kHeldUp) {  // waits show other processes only if the threads are apart
                place_ = kApart;
                crowded_ = held_up_ = 0;
            }
        } else {
            const bool crowded = team.longest_wait * kPart > all;
            // Under a quota stopped threads look as if they had waited for a processor.
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

    // Sets the judgement from outside. Does not wait for the guard, which may be locked forever in
    // a forked child.
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
    long long crowded_ = 0;  // nanoseconds, over looks in a row
    int held_up_ = 0;        // looks in a row
    std::atomic<int> place_ = kApart;
    // A forked child has its parent's counts in libgomp, and none of its threads.
    const pid_t process_ = getpid();
};

// Time of the calling thread's last run: the next run is mostly the same. The first value counts as
// long, since a first run finds cold caches and its team's threads on the processor where they were
// started.
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
    if (!shared_ && looks_ >= kTry) {  // other processes had gone
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
    // A processor with little idle time is rarely tried: the process that uses the rest may still
    // yield to a team.
    if (0 <= idle && idle < kHardly && ++uncounted_ < kFew) return shared_;
    uncounted_ = 0;
    return observe(true);
}

void share_processors(bool shared, int threads) {
    static auto &idlers = *new Idlers();
    // One more than fit on the processors, and the first thread of the team, which does not count.
    const int missing = std::max(0, omp_get_num_procs() - threads) + 2;
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
    if (seated_) seated_->stand();  // threads started from now on inherit no pin
    looks().after(threads_, last_run, sat ? &*seated_ : nullptr, idle < 0 ? -1 : idle - idle_);
}

}  // namespace vtensor::replay
