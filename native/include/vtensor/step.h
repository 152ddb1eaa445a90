/* vtensor/step.h: the contract between VTensor and whatever supplies native kernels.
 *
 * A step is one call of a native kernel with everything but the memory decided: a function, a
 * context, and a description of its argument slots. VTensor allocates every buffer (outputs and
 * scratch included), checks it against the slots, and calls run() as often as it likes, from any
 * thread, without the interpreter's lock.
 *
 * How a step reaches VTensor: a Python object has a method __vtensor_step__() that returns a
 * PyCapsule named VTENSOR_STEP_CAPSULE around a vtensor_step. While the capsule lives, the struct
 * and its context live; whoever keeps the struct longer calls retain(context) first and
 * release(context) when done.
 *
 * Plain C99, no dependency. Every member is set by the supplier unless its comment says otherwise.
 */
#ifndef VTENSOR_STEP_H
#define VTENSOR_STEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. It grows with every change of meaning or of layout; VTensor refuses
 * a step of another version by a typed error. */
#define VTENSOR_STEP_ABI 1u

/* The name of the capsule. */
#define VTENSOR_STEP_CAPSULE "vtensor.step"

/* What run() does with a slot: a non-empty combination of the first two, or SCRATCH alone. */
enum vtensor_access {
    /* Read. The memory may be read-only, and other steps may be reading it at the same time. */
    VTENSOR_READ = 1,
    /* Written; without READ, its former contents are never looked at. */
    VTENSOR_WRITE = 2,
    /* Working memory of this one run: contents are undefined before and after, and it overlaps no
     * other slot. */
    VTENSOR_SCRATCH = 4
};

/* One argument of a step. */
typedef struct vtensor_slot {
    /* The bytes that run() may touch, counted from the slot's address. 0: run() touches nothing,
     * and the address may be null. */
    size_t bytes;
    /* Of enum vtensor_access. */
    uint32_t access;
    /* The address is a multiple of this: a power of two, at least 1. */
    uint32_t alignment;
    /* For messages, UTF-8; or null. */
    const char *name;
} vtensor_slot;

typedef struct vtensor_step {
    /* VTENSOR_STEP_ABI, as the supplier was compiled. First in every version. */
    uint32_t abi;
    /* The number of slots. */
    uint32_t slot_count;
    /* slot_count of them; null only where there are none. */
    const vtensor_slot *slots;
    /* What will run, in the library's own words, for plans and profiles; UTF-8; not null. */
    const char *kernel;
    /* Handed to the functions below. May be null. */
    void *context;
    /* Runs the step on slot_count addresses. Returns 0, or another number after writing a
     * zero-terminated UTF-8 reason of at most error_bytes bytes into error. Must be re-entrant (two
     * threads may run one step on different memory at the same time), must not touch Python, must
     * let no C++ exception out, and must leave the calling thread's state (number of OpenMP
     * threads, floating-point modes) as it was. Outputs are undefined after a failure. */
    int (*run)(void *context, void *const *slots, char *error, size_t error_bytes);
    /* One owner of context more, and one less; the last release frees it, and this struct with it.
     * Callable from any thread. Both may be null if nothing is ever freed. */
    void (*retain)(void *context);
    void (*release)(void *context);
} vtensor_step;

#ifdef __cplusplus
}
#endif

#endif
