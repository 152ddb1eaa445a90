// native/replay/seats.cpp: CPU affinity of the two threads of a team.
#include "seats.h"

#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace vtensor::replay {

namespace {

// The thread id of the second thread of the calling thread's team (0: not known), and the process
// that found it.
thread_local pid_t known_second = 0, known_in = 0;

// Returns the second thread's id. libgomp keeps the thread until a smaller team of this thread
// follows a larger one. A forked child has none of its parent's threads.
pid_t second_of_team() {
    const pid_t process = getpid();
    if (known_second != 0 && known_in == process) return known_second;
    pid_t found = 0;
#pragma omp parallel num_threads(2) shared(found)
    if (omp_get_thread_num() == 1) found = gettid();
    known_in = process;
    return known_second = found;
}

// Returns whether a thread id is of this process: ids are reused.
bool is_ours(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; }

bool sit(pid_t thread, int processor) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(processor, &only);
    return sched_setaffinity(thread, sizeof only, &only) == 0;
}

int other_than(const cpu_set_t &two, int processor) {
    for (int i = 0; i < CPU_SETSIZE; ++i)
        if (i != processor && CPU_ISSET(i, &two)) return i;
    return -1;
}

}  // namespace

Seated::Seated(int threads, Seating seating, int together) {
    if (threads != 2 || seating == Seating::kAnywhere) return;
    if (sched_getaffinity(0, sizeof free_, &free_) != 0 || CPU_COUNT(&free_) != 2) return;
    const int here = seating == Seating::kTogether ? together : sched_getcpu();
    if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &free_)) return;
    const pid_t second = second_of_team();
    cpu_set_t seconds;
    // Threads whose affinity the program has changed keep it.
    if (second == 0 || !is_ours(second) || sched_getaffinity(second, sizeof seconds, &seconds) != 0 ||
        !CPU_EQUAL(&seconds, &free_)) {
        forget_second();
        return;
    }
    const int other = other_than(free_, here);
    const bool both = seating == Seating::kTogether;
    if (!sit(second, both ? here : other)) {
        forget_second();
        return;
    }
    seats_ = {here, both ? here : other};
    left_ = both ? other : -1;
    second_ = second;
    sits_ = true;
    sit(0, here);
}

void Seated::stand() {
    if (!sits_) return;
    sits_ = false;
    sched_setaffinity(0, sizeof free_, &free_);
    sched_setaffinity(second_, sizeof free_, &free_);
}

void forget_second() { known_second = 0; }

}  // namespace vtensor::replay
