// native/onednn/module.cpp: the Python module, and its functions about the library.
#include "module.h"

#include <nanobind/stl/string.h>

#include "handles.h"
#include "library.h"

using namespace nanobind::literals;

NB_MODULE(_onednn, m) {
    using namespace vtensor::onednn;
    // Plans and caches in Python hold primitives to the end of the process.
    nb::set_leak_warnings(false);
    m.doc() = R"(oneDNN's primitives as steps of native/include/vtensor/step.h.

A function that makes a primitive checks its arguments before oneDNN gets them: it raises
ValueError if they are wrong, and Unimplemented if oneDNN has no kernel for them. "Slots"
are those of the primitive's step, in order. oneDNN chooses the layout of a ``Desc.any``.
``attr`` None: no followers, strict arithmetic. All functions may be called from any
thread.)";
    nb::exception<Unimplemented>(m, "Unimplemented", PyExc_RuntimeError);
    bind_values(m);
    bind_primitives(m);
    m.def("isa", &isa,
          R"(Return the best instruction set for kernels ("avx2", "avx512_bf16", "amx", ...).

"none" below sse41. The call fixes the instruction set for the process.)");
    m.def("limit_isa", &limit_isa, "name"_a,
          R"(Cap the instruction set of this process, before the first use of oneDNN.

``name``: "sse41", "avx", "avx2", "avx512", "avx512_bf16", "amx", ..., or "max" for no cap.

Raises:
    ValueError: ``name`` is unknown.
    RuntimeError: oneDNN has fixed another instruction set already.)");
    m.def("version", &version, R"(Return the version of the loaded oneDNN, such as "3.2.0".)");
    m.def("library_path", &library_path, "Return the path of the file of the loaded oneDNN.");
}
