/* tests/native/steps.c: steps from step.h alone. */
#define _GNU_SOURCE
#include "vtensor/step.h"

#include <math.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THIS_ABI .abi = VTENSOR_STEP_ABI, .struct_bytes = sizeof(vtensor_step)
#define SLOT(BYTES, ACCESS, ALIGNMENT, NAME) \
    {.bytes = (BYTES), .access = (ACCESS), .alignment = (ALIGNMENT), .name = (NAME), .planes = 1}
#define SLOTS(LIST) .slots = (LIST), .slot_count = sizeof(LIST) / sizeof((LIST)[0])

int owners = 0; /* of all steps */

static void retain(void *context) { (void)context; ++owners; }
static void release(void *context) { (void)context; --owners; }

/* dst = src * 3; says no to what begins with a negative number, and without a reason to 0. */
static int run_scale(void *context, void *const *slots, const vtensor_run *run) {
    const float *src = (const float *)slots[0];
    float *dst = (float *)slots[1];
    if (src[0] < 0) {
        snprintf(run->error, run->error_bytes, "negative: %g", src[0]);
        return 7;
    }
    if (src[0] == 0) return 7;
    for (int i = 0; i < 4; ++i) dst[i] = src[i] * *(const float *)context;
    return 0;
}
static float factor = 3.0f;
static const vtensor_slot scale_slots[] = {
    SLOT(4 * sizeof(float), VTENSOR_READ, sizeof(float), "src"),
    SLOT(4 * sizeof(float), VTENSOR_WRITE, 1, NULL),
};
vtensor_step scale = {
    THIS_ABI, SLOTS(scale_slots), .kernel = "scale by three", .context = &factor, .run = run_scale,
    .retain = retain, .release = release,
};

/* dst = a + b, by way of scratch. */
static int run_sum(void *context, void *const *slots, const vtensor_run *run) {
    float *dst = (float *)slots[2], *scratch = (float *)slots[3];
    (void)context, (void)run;
    for (int i = 0; i < 4; ++i) scratch[i] = ((float *)slots[0])[i] + ((float *)slots[1])[i];
    for (int i = 0; i < 4; ++i) dst[i] = scratch[i];
    return 0;
}
static const vtensor_slot sum_slots[] = {
    SLOT(4 * sizeof(float), VTENSOR_READ, sizeof(float), "a"),
    SLOT(4 * sizeof(float), VTENSOR_READ, sizeof(float), "b"),
    SLOT(4 * sizeof(float), VTENSOR_WRITE, 16, "dst"),
    SLOT(4 * sizeof(float), VTENSOR_SCRATCH, 16, "scratch"),
};
vtensor_step sum = {THIS_ABI, SLOTS(sum_slots), .kernel = "sum", .run = run_sum,
                    .retain = retain, .release = release};

/* dst = the roots of src; whoever does not look for exceptions himself gets 0 of what has none. How
 * often it ran is counted: with doubts, and without. */
int with_doubt = 0, without_doubt = 0;
static int run_root(void *context, void *const *slots, const vtensor_run *run) {
    const float *src = (const float *)slots[0];
    float *dst = (float *)slots[1];
    (void)context;
    for (int i = 0; i < 4; ++i) {
        volatile float x = src[i]; /* no compiler looks at it, so that flags are as written here */
        dst[i] = run->doubt == NULL && x < 0 ? 0 : sqrtf(x);
    }
    if (run->doubt != NULL) *run->doubt |= VTENSOR_INVALID;
    ++*(run->doubt != NULL ? &with_doubt : &without_doubt);
    return 0;
}
vtensor_step root = {THIS_ABI, SLOTS(scale_slots), .kernel = "root", .run = run_root};

/* Says that it has begun, then waits for an answer, but no longer than context says in seconds. */
int wait_for_answer(void *context, void *const *slots, const vtensor_run *run) {
    volatile int *flags = (volatile int *)slots[0];
    const time_t end = time(NULL) + *(const int *)context;
    flags[0] = 1;
    while (!flags[1])
        if (time(NULL) > end) return snprintf(run->error, run->error_bytes, "no answer"), 1;
    return 0;
}
static int seconds = 60;
static const vtensor_slot flags[] = {SLOT(8, VTENSOR_READ | VTENSOR_WRITE, 4, "flags")};
vtensor_step waiting = {THIS_ABI, SLOTS(flags), .kernel = "waiting", .context = &seconds,
                        .run = wait_for_answer};

/* dst = the thread, as the system numbers it; and a subnormal number, which some modes make 0. */
static int run_whose(void *context, void *const *slots, const vtensor_run *run) {
    volatile float least = 1.17549435e-38f;
    (void)context, (void)run;
    *(int64_t *)slots[0] = (int64_t)syscall(SYS_gettid);
    *(volatile float *)slots[1] = least / 2;
    return 0;
}
static const vtensor_slot whose_slots[] = {SLOT(8, VTENSOR_WRITE, 8, "thread"),
                                           SLOT(4, VTENSOR_WRITE, 4, "least")};
vtensor_step whose = {THIS_ABI, SLOTS(whose_slots), .kernel = "whose", .run = run_whose};

/* dst = high + low / 256, of an operand with two planes: four numbers of two bytes, four of one. */
static int run_join(void *context, void *const *planes, const vtensor_run *run) {
    const int16_t *high = (const int16_t *)planes[0];
    const uint8_t *low = (const uint8_t *)planes[1];
    float *dst = (float *)planes[2];
    (void)context, (void)run;
    for (int i = 0; i < 4; ++i) dst[i] = high[i] + low[i] / 256.0f;
    return 0;
}
static const size_t low_bytes[] = {4};
static const vtensor_slot join_slots[] = {
    {.bytes = 8, .access = VTENSOR_READ, .alignment = 2, .name = "src", .planes = 2,
     .further_bytes = low_bytes},
    SLOT(4 * sizeof(float), VTENSOR_WRITE, sizeof(float), "dst"),
};
vtensor_step join = {THIS_ABI, SLOTS(join_slots), .kernel = "join", .run = run_join};

/* And back; `rest` is scratch of two planes, to see what overlaps it. */
static int run_split(void *context, void *const *planes, const vtensor_run *run) {
    const float *src = (const float *)planes[0];
    int16_t *high = (int16_t *)planes[1];
    uint8_t *low = (uint8_t *)planes[2];
    (void)context, (void)run;
    for (int i = 0; i < 4; ++i) {
        ((float *)planes[3])[i] = ((float *)planes[4])[i] = src[i];
        high[i] = (int16_t)src[i];
        low[i] = (uint8_t)((src[i] - high[i]) * 256);
    }
    return 0;
}
static const size_t rest_bytes[] = {16};
static const vtensor_slot split_slots[] = {
    SLOT(4 * sizeof(float), VTENSOR_READ, sizeof(float), "src"),
    {.bytes = 8, .access = VTENSOR_WRITE, .alignment = 2, .name = "dst", .planes = 2,
     .further_bytes = low_bytes},
    {.bytes = 16, .access = VTENSOR_SCRATCH, .alignment = 4, .name = "rest", .planes = 2,
     .further_bytes = rest_bytes},
};
vtensor_step split = {THIS_ABI, SLOTS(split_slots), .kernel = "split", .run = run_split};

/* dst[row] = the sum of the row, for rows and columns of each run: at most 64 numbers. */
enum { MOST = 64 };
static int sums_bytes(void *context, const int64_t *sizes, size_t *bytes, char *error,
                      size_t error_bytes) {
    (void)context;
    if (sizes[1] == 13) return 7;
    if (sizes[1] == 17) return bytes[0] = bytes[1] = MOST * sizeof(float) + 1, 0;
    if (sizes[1] == 19) return bytes[0] = 4, 0;
    if (sizes[0] > MOST || sizes[1] > MOST || sizes[0] * sizes[1] > MOST) {
        snprintf(error, error_bytes, "more than %d numbers", MOST);
        return 1;
    }
    bytes[0] = (size_t)(sizes[0] * sizes[1]) * sizeof(float);
    bytes[1] = (size_t)sizes[0] * sizeof(float);
    return 0;
}
static int run_sums(void *context, void *const *slots, const vtensor_run *run) {
    const float *src = (const float *)slots[0];
    float *dst = (float *)slots[1];
    (void)context;
    for (int64_t row = 0; row < run->sizes[0]; ++row) {
        float total = 0;
        for (int64_t column = 0; column < run->sizes[1]; ++column) total += *src++;
        dst[row] = total;
    }
    return 0;
}
static const vtensor_slot sums_slots[] = {
    SLOT(MOST * sizeof(float), VTENSOR_READ, sizeof(float), "src"),
    SLOT(MOST * sizeof(float), VTENSOR_WRITE, sizeof(float), "dst"),
};
vtensor_step sums = {THIS_ABI, SLOTS(sums_slots), .size_count = 2, .kernel = "sums",
                     .run = run_sums, .bytes_for = sums_bytes, .retain = retain,
                     .release = release};

/* A device in this process: what is in its queue is done when somebody flushes it. */
typedef struct fake_queue {
    int count, done;
    struct { const float *src; float *dst; } work[8];
} fake_queue;
fake_queue *fake_queue_of(void) { static fake_queue queue; return &queue; }
void fake_flush(fake_queue *queue) {
    for (; queue->done < queue->count; ++queue->done)
        for (int i = 0; i < 4; ++i)
            queue->work[queue->done].dst[i] = queue->work[queue->done].src[i] * 2;
}

/* dst = src * 2, there. */
static int run_double(void *context, void *const *slots, const vtensor_run *run) {
    fake_queue *queue = (fake_queue *)run->queue;
    (void)context;
    if (queue->count == 8) return snprintf(run->error, run->error_bytes, "the queue is full"), 1;
    queue->work[queue->count].src = (const float *)slots[0];
    queue->work[queue->count++].dst = (float *)slots[1];
    return 0;
}
vtensor_step twice = {THIS_ABI, SLOTS(scale_slots), .kernel = "double", .device = "fake",
                      .run = run_double};
vtensor_step other_device = {THIS_ABI, SLOTS(scale_slots), .kernel = "double", .device = "other",
                             .run = run_double};

/* The device's memory, brought here: waits for what is in the queue before it. */
static int run_fetch(void *context, void *const *slots, const vtensor_run *run) {
    (void)context;
    fake_flush((fake_queue *)run->queue);
    for (int i = 0; i < 4; ++i) ((float *)slots[1])[i] = ((const float *)slots[0])[i];
    return 0;
}
vtensor_step fetch = {THIS_ABI, SLOTS(scale_slots), .kernel = "fetch", .device = "fake",
                      .run = run_fetch};

/* dst = what a step finds in vtensor_run: whether there is a queue, sizes; how large it is. */
static int run_report(void *context, void *const *slots, const vtensor_run *run) {
    int64_t *dst = (int64_t *)slots[0];
    (void)context;
    dst[0] = run->queue != NULL;
    dst[1] = run->sizes != NULL;
    dst[2] = run->struct_bytes >= sizeof(vtensor_run) && run->error_bytes >= 256;
    return 0;
}
static const vtensor_slot report_slots[] = {SLOT(24, VTENSOR_WRITE, 8, "dst")};
vtensor_step report = {THIS_ABI, SLOTS(report_slots), .kernel = "report", .run = run_report};
