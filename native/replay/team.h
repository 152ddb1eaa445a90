// native/replay/team.h: the queue of jobs of one server thread. No Python in here.
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

// A job for a server thread; it must live until it is done.
class Job {
public:
    // The function of a job; `stop` becomes true when the job is to end soon.
    using Work = std::function<void(const std::atomic<bool> &stop)>;
    explicit Job(Work work) : work_(std::move(work)) {}

    // Throws, once the job is done, what its function threw, or Stopped if it never began.
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

// A queue of jobs that one server thread runs one after another; a caller may take a turn and do
// work itself.
class Team {
public:
    // Runs jobs on the calling thread, which becomes the server, until the team is closed.
    void serve();
    bool serves_here() const { return std::this_thread::get_id() == server_.load(); }
    // Returns whether the calling thread is the server of any team.
    static bool is_server();
    // The stop flag for work that the server does without queueing it.
    const std::atomic<bool> &stop() const { return stop_; }

    // Takes the turn for work on the calling thread, and returns whether it could: no job may be
    // running or queued. The caller then calls leave().
    bool enter();
    void leave();

    // Queues a job. Throws Stopped if the team is closed.
    void submit(Job &job);
    // Waits for a job for at most `patience`, and returns whether it is done.
    bool wait(Job &job, std::chrono::milliseconds patience);
    // Withdraws a queued job, or asks a running one to stop.
    void cancel(Job &job);
    // Withdraws a queued job, and returns whether it was queued.
    bool withdraw(Job &job);
    // Closes the team: no further job begins, and the running one is asked to stop.
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
