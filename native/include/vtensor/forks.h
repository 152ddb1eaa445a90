// native/include/vtensor/forks.h: a gate that delays a fork until threads have left critical work.
// No Python in here.
#pragma once

#include <pthread.h>

#include <system_error>

namespace vtensor {

// The gate at which a fork waits: a fork copies locks in their state, but not the threads that
// would release them. Each extension module has its own gate.
class ForkGate {
public:
    ForkGate() {
        pthread_rwlockattr_t writer_first;  // else busy threads delay a fork forever
        pthread_rwlockattr_init(&writer_first);
#ifdef __GLIBC__
        pthread_rwlockattr_setkind_np(&writer_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
#endif
        pthread_rwlock_init(&lock_, &writer_first);
        pthread_rwlockattr_destroy(&writer_first);
        const int failed = pthread_atfork(&before, &in_parent, &in_child);
        if (failed != 0) throw std::system_error(failed, std::generic_category(), "pthread_atfork");
    }
    ForkGate(const ForkGate &) = delete;
    ForkGate &operator=(const ForkGate &) = delete;

    inline static thread_local int depth = 0;

    void enter() {
        if (depth++ == 0) pthread_rwlock_rdlock(&lock_);
    }
    void leave() {
        if (--depth == 0) pthread_rwlock_unlock(&lock_);
    }

private:
    static void before();
    static void in_parent();
    static void in_child();

    pthread_rwlock_t lock_;
};

inline ForkGate fork_gate;

inline void ForkGate::before() { pthread_rwlock_wrlock(&fork_gate.lock_); }
inline void ForkGate::in_parent() { pthread_rwlock_unlock(&fork_gate.lock_); }
// Threads that wait at the gate do not exist in the child, whose gate is new.
inline void ForkGate::in_child() { pthread_rwlock_init(&fork_gate.lock_, nullptr); }

// While an Unforked exists, no fork of this process begins. Its thread must not wait for Python's
// lock meanwhile: the forking thread may hold it.
class Unforked {
public:
    Unforked() { fork_gate.enter(); }
    ~Unforked() { fork_gate.leave(); }
    Unforked(const Unforked &) = delete;
    Unforked &operator=(const Unforked &) = delete;
};

}  // namespace vtensor
