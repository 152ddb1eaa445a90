/* The kernels, and the steps around them. Built against vtensor/step.h alone. */
#include "direct.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A step with all that it needs: its own context, freed by its last owner. */
typedef struct owned_step {
    vtensor_step step;
    vtensor_slot slots[3];
    atomic_int owners;
    direct_sizes sizes;
    size_t elements;
} owned_step;

/* One output pixel: each element of the window, times its row of kernels. */
static void pixel(const direct_sizes *sizes, const float *image, const float *weights,
                  float *restrict dst, long long top, long long left) {
    const long long height = sizes->src[1], width = sizes->src[2], channels = sizes->src[3];
    const long long kernels = sizes->dst[3];
    for (long long o = 0; o < kernels; ++o) dst[o] = 0;
    for (long long h = 0; h < sizes->weights[0]; ++h) {
        if (top + h < 0 || top + h >= height) continue;
        for (long long w = 0; w < sizes->weights[1]; ++w) {
            if (left + w < 0 || left + w >= width) continue;
            const float *in = image + ((top + h) * width + left + w) * channels;
            const float *row = weights + (h * sizes->weights[1] + w) * channels * kernels;
            for (long long c = 0; c < channels; ++c, row += kernels)
                for (long long o = 0; o < kernels; ++o) dst[o] += in[c] * row[o];
        }
    }
}

static int run_convolution(void *context, void *const *slots, const vtensor_run *run) {
    (void)run;
    const direct_sizes *sizes = &((const owned_step *)context)->sizes;
    const long long step = sizes->src[1] * sizes->src[2] * sizes->src[3];
    const float *image = slots[0];
    float *dst = slots[2];
    for (long long n = 0; n < sizes->dst[0]; ++n, image += step)
        for (long long h = 0; h < sizes->dst[1]; ++h)
            for (long long w = 0; w < sizes->dst[2]; ++w, dst += sizes->dst[3])
                pixel(sizes, image, slots[1], dst, h * sizes->strides[0] - sizes->pads[0],
                      w * sizes->strides[1] - sizes->pads[1]);
    return 0;
}

static int run_relu(void *context, void *const *slots, const vtensor_run *run) {
    (void)run;
    const size_t elements = ((const owned_step *)context)->elements;
    const float *src = slots[0];
    float *dst = slots[1];
    for (size_t i = 0; i < elements; ++i) dst[i] = src[i] < 0 ? 0 : src[i]; /* NaN stays */
    return 0;
}

static void retain(void *context) { atomic_fetch_add(&((owned_step *)context)->owners, 1); }

static void release(void *context) {
    if (atomic_fetch_sub(&((owned_step *)context)->owners, 1) == 1) free(context);
}

/* A step that reads floats and writes its last slot. */
static owned_step *make(const char *kernel,
                        int (*run)(void *, void *const *, const vtensor_run *),
                        uint32_t slot_count, const size_t *bytes) {
    owned_step *made = calloc(1, sizeof *made);
    if (made == NULL) return NULL;
    for (uint32_t i = 0; i < slot_count; ++i) {
        const int last = i + 1 == slot_count;
        made->slots[i] = (vtensor_slot){
            .bytes = bytes[i], .access = last ? VTENSOR_WRITE : VTENSOR_READ,
            .alignment = sizeof(float), .name = last ? "dst" : i == 0 ? "src" : "weights",
            .planes = 1};
    }
    made->step = (vtensor_step){
        .abi = VTENSOR_STEP_ABI, .struct_bytes = sizeof(vtensor_step),
        .slot_count = slot_count, .slots = made->slots, .kernel = kernel,
        .context = made, .run = run, .retain = retain, .release = release};
    atomic_init(&made->owners, 1);
    return made;
}

/* The bytes of floats of these sizes; false where one is negative, or memory has no such room even
 * without the sizes that are 0. */
static int count(const long long *sizes, int rank, size_t *bytes) {
    size_t room = sizeof(float);
    int empty = 0;
    for (int i = 0; i < rank; ++i) {
        if (sizes[i] < 0) return 0;
        if (sizes[i] > 0 && room > (size_t)PTRDIFF_MAX / (size_t)sizes[i]) return 0;
        if (sizes[i] > 0) room *= (size_t)sizes[i];
        empty |= sizes[i] == 0;
    }
    *bytes = empty ? 0 : room;
    return 1;
}

/* The window, along one dim, makes as many outputs as dst has. */
static int fits(const direct_sizes *sizes, int dim) {
    const long long src = sizes->src[1 + dim], kernel = sizes->weights[dim];
    const long long begin = sizes->pads[dim], end = sizes->pads[2 + dim];
    if (kernel < 1 || sizes->strides[dim] < 1 || begin < 0 || end < 0) return 0;
    if (src > INT32_MAX || begin > INT32_MAX || end > INT32_MAX) return 0; /* the sum is exact */
    const long long room = src + begin + end - kernel;
    return room >= 0 && room / sizes->strides[dim] + 1 == sizes->dst[1 + dim];
}

vtensor_step *direct_convolution(const direct_sizes *sizes, const char **why) {
    size_t bytes[3];
    *why = "sizes are negative, or more than memory can hold";
    if (!count(sizes->src, 4, bytes) || !count(sizes->weights, 4, bytes + 1) ||
        !count(sizes->dst, 4, bytes + 2))
        return NULL;
    *why = "src N H W C, weights h w I O and dst N H W O do not belong together";
    if (sizes->src[0] != sizes->dst[0] || sizes->src[3] != sizes->weights[2] ||
        sizes->weights[3] != sizes->dst[3])
        return NULL;
    *why = "the window does not make dst of src";
    if (!fits(sizes, 0) || !fits(sizes, 1)) return NULL;
    *why = NULL;
    owned_step *made = make("direct:nhwc", run_convolution, 3, bytes);
    if (made == NULL) return NULL;
    made->sizes = *sizes;
    return &made->step;
}

vtensor_step *direct_relu(long long elements, const char **why) {
    size_t bytes[2];
    *why = "sizes are negative, or more than memory can hold";
    if (!count(&elements, 1, bytes)) return NULL;
    *why = NULL;
    bytes[1] = bytes[0];
    owned_step *made = make("direct:relu", run_relu, 2, bytes);
    if (made == NULL) return NULL;
    made->elements = (size_t)elements;
    return &made->step;
}
