// native/replay/team.h: the queue of one thread. No Python in here.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "runner.h"

namespace vtensor::replay {

// Work for a team; it stays where it is until it is done.
class Job {
public:
    // Called with what becomes true when the work is to end soon.
    using Work = std::function<void(const std::atomic<bool> &stop)>;
    explicit Job(Work work) : work_(std::move(work)) {}

    // Once done: throws what the work threw, or Stopped if it never began.
    void rethrow() const {
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    friend class Team;
    Work work_;
    std::exception_ptr failure_;
    bool done_ = false;
    std::condition_variable finished_;
};

// The jobs of one thread, which run one after the other; a caller's own work may take its turn.
class Team {
public:
    // Runs jobs on the calling thread until the team is closed.
    void serve();
    bool serves_here() const { return std::this_thread::get_id() == server_.load(); }
    // Whether the calling thread is any team's.
    static bool is_server();
    // For work that is not queued since it is the thread's own.
    const std::atomic<bool> &stop() const { return stop_; }

    // Whether the calling thread has the team's turn, for work that it does itself: nobody else
    // works or waits. Then it calls `leave`.
    bool enter();
    void leave();

    // Throws Stopped if the team is closed.
    void submit(Job &job);
    // Whether the job is done, after waiting for so long at most.
    bool wait(Job &job, std::chrono::milliseconds patience);
    // A job that waits never begins; one that runs is asked to stop.
    void cancel(Job &job);
    // Whether the job waited, and now never begins.
    bool withdraw(Job &job);
    // No job begins any more, and the one that runs is asked to stop.
    void close();

private:
    Job *next();
    static void end(Job &job, std::exception_ptr failure);

    std::mutex guard_;
    std::condition_variable wake_;
    std::deque<Job *> queue_;
    Job *current_ = nullptr;
    bool entered_ = false;
    bool closed_ = false;
    std::atomic<bool> stop_ = false;
    std::atomic<std::thread::id> server_{};
};

}  // namespace vtensor::replay
