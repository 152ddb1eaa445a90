// native/replay/seats.h: which processors the two threads of a team are on. No Python in here.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <array>

namespace vtensor::replay {

// Where a run's threads are. A thread that has slept may be woken on the processor of its waker, and
// the system may leave both there for many milliseconds while the other processor has nothing to do.
// Where others use a processor too, halves of equal size take as long as on one processor, and far
// longer whenever the other is held up.
enum class Seating {
    kApart,     // each on a processor of its own
    kTogether,  // both on one: the other processor is left to others
    kAnywhere,  // where the system puts them
};

// While a team of two has two processors in all, its threads have seats; the calling thread is its
// first. Others' teams sit nowhere: the system finds an idle processor among many, and libgomp may
// exchange their threads. Afterwards both threads are free as before, so that threads that they
// start later inherit nothing. Not for runs that call Python, which might start some.
class Seated {
public:
    // `together`: the processor of both, where they are to share one.
    Seated(int threads, Seating seating, int together);
    ~Seated() { stand(); }
    Seated(const Seated &) = delete;
    Seated &operator=(const Seated &) = delete;

    // Both threads are free again; what follows still says where they were.
    void stand();
    // The processor of the first thread (0) or the second (1); -1: they had no seats.
    int of(int thread) const { return seats_[thread]; }
    // The processor that is left to others, where both threads share one; otherwise -1.
    int left() const { return left_; }

private:
    cpu_set_t free_;
    std::array<int, 2> seats_{-1, -1};
    int left_ = -1;
    pid_t second_ = 0;
    bool sits_ = false;
};

// The calling thread's team has ended: its second thread is another one next time.
void forget_second();

}  // namespace vtensor::replay
