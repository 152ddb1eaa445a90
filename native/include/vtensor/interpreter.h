// native/include/vtensor/interpreter.h: the interpreter's lock, for threads that may outlive it.
//
// CPython before 3.14 ends a thread that asks for the lock after the interpreter has begun to shut
// down, by unwinding its stack. A destructor does not let that through: the process would abort.
// Such a thread sleeps until the process is over instead.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace vtensor {

// Returns whether the interpreter is shutting down. The caller holds the lock, so that a shutdown
// can only be its own thread's.
inline bool shutting_down() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

// Calls a function that takes the lock, and returns its result.
template <typename Take>
auto take_lock(const Take &take) {
    try {
        return take();
    } catch (...) {  // the unwinding of this thread; the end of this block would abort the process
        for (;;) pause();
    }
}

// Releases the lock for a scope.
class Unlocked {
public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked() {
        take_lock([this] { PyEval_RestoreThread(state_); });
    }
    Unlocked(const Unlocked &) = delete;
    Unlocked &operator=(const Unlocked &) = delete;

private:
    PyThreadState *state_;
};

// Takes the lock for a scope, on any thread.
class Locked {
public:
    Locked() : state_(take_lock(&PyGILState_Ensure)) {}
    ~Locked() { PyGILState_Release(state_); }
    Locked(const Locked &) = delete;
    Locked &operator=(const Locked &) = delete;

private:
    PyGILState_STATE state_;
};

}  // namespace vtensor
