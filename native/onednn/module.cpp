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

Arguments are verified before they reach oneDNN: ValueError for what is wrong, Unimplemented for
what is right but has no kernel. Everything may be called from any thread.)";
    nb::exception<Unimplemented>(m, "Unimplemented", PyExc_RuntimeError);
    bind_values(m);
    bind_primitives(m);
    m.def("isa", &isa,
          R"(Return the best instruction set for kernels ("avx2", "avx512_bf16", "amx", ...).

Asking fixes it for the process.)");
    m.def("limit_isa", &limit_isa, "name"_a,
          R"(Cap the instruction set of this process, before the first use of oneDNN.

``name``: "sse41", "avx", "avx2", "avx512", "avx512_bf16", "amx", ..., or "max" for no cap.

Raises:
    ValueError: unknown name.
    RuntimeError: oneDNN has fixed another instruction set already.)");
    m.def("version", &version, "Return the version of the loaded library, as in \"3.2.0\".");
    m.def("library_path", &library_path, "Return the file of the loaded library.");
}
