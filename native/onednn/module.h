// native/onednn/module.h: the parts of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace vtensor::onednn {

namespace nb = nanobind;

// Desc, Attr, and the names that they take.
void bind_values(nb::module_ &m);

// Primitive, the functions that make one, and their cache.
void bind_primitives(nb::module_ &m);

}  // namespace vtensor::onednn
