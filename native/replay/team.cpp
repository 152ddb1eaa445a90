// native/replay/team.cpp: the queue of jobs of one server thread.
#include "team.h"

#include <algorithm>
#include <utility>

namespace vtensor::replay {

namespace {

constexpr const char *kClosed = "the team is closed";

thread_local bool serves = false;

}  // namespace

void Team::serve() {
    server_ = std::this_thread::get_id();
    serves = true;
    while (Job *job = next()) {
        std::exception_ptr failure;
        try {
            job->work_(stop_);
        } catch (...) {
            failure = std::current_exception();
        }
        const std::scoped_lock lock(guard_);
        current_ = nullptr;
        end(*job, std::move(failure));
    }
}

bool Team::is_server() { return serves; }

Job *Team::next() {
    std::unique_lock lock(guard_);
    wake_.wait(lock, [this] { return closed_ || (!queue_.empty() && !entered_); });
    if (closed_) return nullptr;
    current_ = queue_.front();
    queue_.pop_front();
    stop_ = false;
    return current_;
}

// Called under the lock: the waiting caller may destroy the job as soon as the lock is free.
void Team::end(Job &job, std::exception_ptr failure) {
    job.failure_ = std::move(failure);
    job.done_ = true;
    job.finished_.notify_one();
}

bool Team::enter() {
    const std::scoped_lock lock(guard_);
    if (closed_ || entered_ || current_ != nullptr || !queue_.empty()) return false;
    entered_ = true;
    stop_ = false;
    return true;
}

void Team::leave() {
    const std::scoped_lock lock(guard_);
    entered_ = false;
    if (!queue_.empty()) wake_.notify_one();
}

void Team::submit(Job &job) {
    const std::scoped_lock lock(guard_);
    if (closed_) throw Stopped(kClosed);
    queue_.push_back(&job);
    wake_.notify_one();
}

bool Team::wait(Job &job, std::chrono::milliseconds patience) {
    std::unique_lock lock(guard_);
    return job.finished_.wait_for(lock, patience, [&job] { return job.done_; });
}

void Team::cancel(Job &job) {
    if (withdraw(job)) return;
    const std::scoped_lock lock(guard_);
    if (current_ == &job) stop_ = true;
}

bool Team::withdraw(Job &job) {
    const std::scoped_lock lock(guard_);
    const auto queued = std::find(queue_.begin(), queue_.end(), &job);
    if (queued == queue_.end()) return false;
    queue_.erase(queued);
    end(job, std::make_exception_ptr(Stopped("the run was cancelled")));
    return true;
}

void Team::close() {
    const std::scoped_lock lock(guard_);
    closed_ = stop_ = true;
    for (Job *job : std::exchange(queue_, {}))
        end(*job, std::make_exception_ptr(Stopped(kClosed)));
    wake_.notify_one();
}

}  // namespace vtensor::replay
