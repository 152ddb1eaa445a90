/* The two kernels as steps. */
#ifndef VTENSOR_DIRECT_H
#define VTENSOR_DIRECT_H

#include <stdint.h>

#include "vtensor/step.h"

/* Sizes in memory, slowest first: N H W C, h w I O, N H' W' O; pads at the beginnings of H and W,
 * then at their ends. */
typedef struct direct_sizes {
    long long src[4], weights[4], dst[4], strides[2], pads[4];
} direct_sizes;

/* A step that its caller owns, or null: then why it cannot be, or null when memory is out. */
vtensor_step *direct_convolution(const direct_sizes *sizes, const char **why);
vtensor_step *direct_relu(long long elements, const char **why);

#endif
