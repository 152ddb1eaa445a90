// native/replay/seats.h: CPU affinity of the two threads of a team. No Python in here.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <array>

namespace vtensor::replay {

// The placement of a run's threads. The system may wake a thread on the processor of its waker and
// leave both there for many milliseconds, the other processor idle. If other processes use one of
// two processors, two equal halves take as long on two processors as on one, and far longer
// whenever one half is held up.
enum class Seating {
    kApart,     // each on a processor of its own
    kTogether,  // both on one; other processes have the other
    kAnywhere,  // not pinned
};

// Pins, for a scope, the threads of a team of two that has two processors in all, each to a
// processor; the calling thread is the first. Larger teams are not pinned: the system finds an idle
// processor among many, and libgomp may exchange their threads. Afterwards both threads have their
// former affinity, so that threads that they start later inherit no pin. Not for runs that call
// Python, which may start threads.
class Seated {
public:
    // together: the processor of both threads, if they are to share one.
    Seated(int threads, Seating seating, int together);
    ~Seated() { stand(); }
    Seated(const Seated &) = delete;
    Seated &operator=(const Seated &) = delete;

    // Restores both threads' affinity; the functions below still return where they were pinned.
    void stand();
    // Returns the processor of the first thread (0) or the second (1); -1 if they were not pinned.
    int of(int thread) const { return seats_[thread]; }
    // Returns the processor that is left to other processes while both threads share one; else -1.
    int left() const { return left_; }

private:
    cpu_set_t free_;
    std::array<int, 2> seats_{-1, -1};
    int left_ = -1;
    pid_t second_ = 0;
    bool sits_ = false;
};

// Records that the calling thread's team has ended: its second thread will be another one.
void forget_second();

}  // namespace vtensor::replay
