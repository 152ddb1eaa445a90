/* tests/native/steps.c: steps from step.h alone. */
#include "vtensor/step.h"

#include <stdio.h>
#include <time.h>

int owners = 0; /* of all steps */

static void retain(void *context) { (void)context; ++owners; }
static void release(void *context) { (void)context; --owners; }

/* dst = src * 3; says no to what begins with a negative number, and without a reason to 0. */
static int run_scale(void *context, void *const *slots, char *error, size_t error_bytes) {
    const float *src = (const float *)slots[0];
    float *dst = (float *)slots[1];
    if (src[0] < 0) {
        snprintf(error, error_bytes, "negative: %g", src[0]);
        return 7;
    }
    if (src[0] == 0) return 7;
    for (int i = 0; i < 4; ++i) dst[i] = src[i] * *(const float *)context;
    return 0;
}
static float factor = 3.0f;
static const vtensor_slot scale_slots[] = {
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "src"},
    {4 * sizeof(float), VTENSOR_WRITE, 1, NULL},
};
vtensor_step scale = {
    VTENSOR_STEP_ABI, 2, scale_slots, "scale by three", &factor, run_scale, retain, release,
};

/* dst = a + b, by way of scratch. */
static int run_sum(void *context, void *const *slots, char *error, size_t error_bytes) {
    float *dst = (float *)slots[2], *scratch = (float *)slots[3];
    (void)context, (void)error, (void)error_bytes;
    for (int i = 0; i < 4; ++i) scratch[i] = ((float *)slots[0])[i] + ((float *)slots[1])[i];
    for (int i = 0; i < 4; ++i) dst[i] = scratch[i];
    return 0;
}
static const vtensor_slot sum_slots[] = {
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "a"},
    {4 * sizeof(float), VTENSOR_READ, sizeof(float), "b"},
    {4 * sizeof(float), VTENSOR_WRITE, 16, "dst"},
    {4 * sizeof(float), VTENSOR_SCRATCH, 16, "scratch"},
};
vtensor_step sum = {VTENSOR_STEP_ABI, 4, sum_slots, "sum", NULL, run_sum, retain, release};

/* Says that it has begun, then waits for an answer, but no longer than context says in seconds. */
int wait_for_answer(void *context, void *const *slots, char *error, size_t error_bytes) {
    volatile int *flags = (volatile int *)slots[0];
    const time_t end = time(NULL) + *(const int *)context;
    flags[0] = 1;
    while (!flags[1])
        if (time(NULL) > end) return snprintf(error, error_bytes, "no answer"), 1;
    return 0;
}
static int seconds = 60;
static const vtensor_slot flags[] = {{8, VTENSOR_READ | VTENSOR_WRITE, 4, "flags"}};
vtensor_step waiting = {VTENSOR_STEP_ABI, 1, flags, "waiting", &seconds, wait_for_answer, NULL, NULL};
