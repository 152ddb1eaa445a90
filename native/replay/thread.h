// native/replay/thread.h: the calling thread as steps are to find it, and as it was. No Python in
// here.
#pragma once

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <cfenv>
#include <cstddef>

namespace vtensor::replay {

// Sets the calling thread's number of OpenMP threads for a scope; 0: as it is.
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

// The floating-point modes that a thread begins with: libraries that set the caller's to flush
// subnormal numbers, say, change no answer.
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

// The stack that kernels may count on, in bytes.
inline constexpr std::size_t kStack = std::size_t{1} << 20;

// Whether the calling thread has a stack for kernels; a caller may have made it with less.
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

// Whether the calling thread, and those that it starts, may be on so many processors.
inline bool has_processors(int threads) {
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= threads;
}

}  // namespace vtensor::replay
