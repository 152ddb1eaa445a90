// native/eigen/level.cpp: a module of kernels, compiled for one instruction set.
#include <nanobind/nanobind.h>

#include "module.h"

NB_MODULE(VTENSOR_MODULE, m) {
    // Plans in Python hold kernels to the end of the process.
    nanobind::set_leak_warnings(false);
    m.attr("level") = VTENSOR_LEVEL;
    vtensor::bind_kernels(m);
}
