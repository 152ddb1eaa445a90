// native/onednn/module.h: the parts of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace vtensor::onednn {

namespace nb = nanobind;

// Adds Desc, Attr, and the functions that list their names.
void bind_values(nb::module_ &m);

// Adds Primitive, the functions that make one, and their cache.
void bind_primitives(nb::module_ &m);

}  // namespace vtensor::onednn
