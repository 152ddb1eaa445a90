/* vtensor/step.h: the contract between VTensor and a supplier of native kernels.
 *
 * A step is one call of a native kernel with everything but the memory decided: a function, a
 * context, and a description of its argument slots. VTensor allocates every buffer (outputs and
 * scratch included), checks it against the slots, and calls run() as often as it likes, from any
 * thread, without the interpreter's lock.
 *
 * How a step reaches VTensor: a Python object has a method __vtensor_step__() that returns a
 * PyCapsule named VTENSOR_STEP_CAPSULE around a vtensor_step. While the capsule lives, the struct
 * and its context live; a holder that keeps the struct longer calls retain(context) first and
 * release(context) when done.
 *
 * Plain C99, no dependency. Every member is set by the supplier unless its comment says otherwise.
 * A member that is not needed is 0 or null. Three things are needed by few kernels: several planes,
 * sizes, a queue. VTensor's own plans use none of them yet; its runner takes all three.
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
#define VTENSOR_STEP_ABI 2u

/* The name of the capsule. */
#define VTENSOR_STEP_CAPSULE "vtensor.step"

/* The name of a capsule around the queue of a device: see vtensor_run. */
#define VTENSOR_QUEUE_CAPSULE "vtensor.queue"

/* The most planes that a slot may have. */
#define VTENSOR_MAX_PLANES 16u

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

/* What run() may return besides 0; any other number means VTENSOR_FAILED. */
enum vtensor_status {
    /* The kernel failed. */
    VTENSOR_FAILED = 1,
    /* The kernel found numbers in its operands that it cannot work with, such as an index outside
     * of its axis; the caller gets an InputError. (As EX_DATAERR in sysexits.h.) */
    VTENSOR_BAD_INPUT = 65
};

/* What run() may note in vtensor_run.doubt: exceptions of floating-point arithmetic. */
enum vtensor_doubt { VTENSOR_INVALID = 1, VTENSOR_OVERFLOW = 2 };

/* One argument of a step: a tensor, or scratch. A plane is one piece of its memory. Nearly every
 * slot has one; numbers that are a high and a low part, or numbers with their scales, have more,
 * each at an address of its own. */
typedef struct vtensor_slot {
    /* The bytes that run() may touch, counted from the address of the first plane. 0: run() touches
     * nothing, and the address may be null. In a step with sizes: the most, whatever they are. */
    size_t bytes;
    /* Of enum vtensor_access. */
    uint32_t access;
    /* Every plane's address is a multiple of this: a power of two, at least 1. */
    uint32_t alignment;
    /* For messages, UTF-8; or null. */
    const char *name;
    /* The number of planes: 1 to VTENSOR_MAX_PLANES. */
    uint32_t planes;
    /* As `bytes`, which is for the first plane, but for each further plane: planes - 1 numbers.
     * Null if there is one plane. */
    const size_t *further_bytes;
} vtensor_slot;

/* The arguments of run() besides its memory. VTensor owns it; it is valid until run() returns. */
typedef struct vtensor_run {
    /* sizeof(vtensor_run) as VTensor was compiled. New members are added at the end: compare this
     * before reading one. */
    size_t struct_bytes;
    /* Null exactly where the step's device is null: do the work on the calling thread and its
     * OpenMP threads, and return when it is done. Else the queue of that device, in the form that
     * its steps agree on (a pointer to a stream, say): add the work and return without waiting for
     * it. That work keeps copies of the addresses and sizes, and is an owner of the context if it
     * needs it. What is in one queue is done in the order in which it was added. A step that copies
     * to the CPU's memory waits for the queue before it returns; the owner of the queue waits for
     * it before reading results. */
    void *queue;
    /* size_count numbers, none negative, which the step's bytes_for() took; null where there are
     * none. */
    const int64_t *sizes;
    /* Where run() writes why it failed: zero-terminated UTF-8 in error_bytes bytes. */
    char *error;
    size_t error_bytes;
    /* Null: each step checks its own result. Else a step whose result may be wrong only if a thread
     * of the team has raised a floating-point exception may add that exception (of enum
     * vtensor_doubt) here instead of checking. If one of the exceptions was raised by the end of
     * the run, VTensor repeats the run with null here. An absent member (see struct_bytes) means
     * null. */
    uint32_t *doubt;
} vtensor_run;

typedef struct vtensor_step {
    /* VTENSOR_STEP_ABI, as the supplier was compiled. First in every version. */
    uint32_t abi;
    /* sizeof(vtensor_step), as the supplier was compiled. Second in every version from 2 on. */
    uint32_t struct_bytes;
    /* The number of slots. */
    uint32_t slot_count;
    /* How many sizes each run has of its own. 0: the step is for the sizes that it was made with.
     * The supplier documents what each of them is (rows, say). */
    uint32_t size_count;
    /* slot_count of them; null only where there are none. */
    const vtensor_slot *slots;
    /* What will run, in the library's own words, for plans and profiles; UTF-8; not null. */
    const char *kernel;
    /* The device in whose queue run() puts its work, by the name that library descriptions give it;
     * or null: run() works on the CPU, and is given no queue. */
    const char *device;
    /* Handed to the functions below. May be null. */
    void *context;
    /* Runs the step. `addresses` holds one address a plane: those of the first slot in their order,
     * then those of the second, and so on; where every slot has one plane, addresses[i] is slot
     * i's. Returns 0, or one of enum vtensor_status after writing a reason into run->error. Must be
     * re-entrant (two threads may run one step on different memory at the same time), must not
     * touch Python, must let no C++ exception out, and must leave the calling thread's state
     * (number of OpenMP threads, floating-point modes) as it was. Outputs are undefined after a
     * failure. */
    int (*run)(void *context, void *const *addresses, const vtensor_run *run);
    /* Null where size_count is 0. Else it says what a run with these sizes (size_count numbers,
     * none negative) may touch: it writes the bytes of each plane, in the order of addresses, none
     * of them more than its slot says. Returns 0, or another number if the step does not take the
     * sizes, after writing a reason into error. VTensor calls it before a run with sizes that the
     * last run did not have. It changes nothing in the context: two threads may run one step with
     * different sizes at the same time. As run(), it touches no Python and lets no exception out.
     */
    int (*bytes_for)(void *context, const int64_t *sizes, size_t *bytes, char *error,
                     size_t error_bytes);
    /* One owner of context more, and one less; the last release frees it, and this struct with it.
     * Callable from any thread. Both may be null if nothing is ever freed. */
    void (*retain)(void *context);
    void (*release)(void *context);
} vtensor_step;

#ifdef __cplusplus
}
#endif

#endif
