// native/replay/thread.h: the state of the calling thread that steps need, restored afterwards. No
// Python in here.
#pragma once

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <cfenv>
#include <cstddef>

namespace vtensor::replay {

// Sets the calling thread's number of OpenMP threads for a scope; 0 leaves it.
class ThreadScope {
public:
    explicit ThreadScope(int threads) : before_(omp_get_max_threads()) {
        if (threads > 0 && threads != before_) omp_set_num_threads(threads);
    }
    ~ThreadScope() {
        if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
    }
    ThreadScope(const ThreadScope &) = delete;
    ThreadScope &operator=(const ThreadScope &) = delete;

private:
    int before_;
};

// Sets the default floating-point modes for a scope: results do not depend on a caller's library
// that flushes subnormals, say.
class FloatScope {
public:
    FloatScope() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~FloatScope() { std::fesetenv(&before_); }
    FloatScope(const FloatScope &) = delete;
    FloatScope &operator=(const FloatScope &) = delete;

private:
    std::fenv_t before_;
};

// The stack size that kernels may rely on, in bytes.
inline constexpr std::size_t kStack = std::size_t{1} << 20;

// Returns whether the calling thread has kStack bytes of stack; its creator may have asked for
// less.
inline bool has_stack() {
    thread_local const bool enough = [] {
        pthread_attr_t attributes;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
        std::size_t bytes = 0;
        pthread_attr_getstacksize(&attributes, &bytes);
        pthread_attr_destroy(&attributes);
        return bytes >= kStack;
    }();
    return enough;
}

// Returns whether the calling thread, and threads that it starts, may run on this many processors.
inline bool has_processors(int threads) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= threads;
}

}  // namespace vtensor::replay
