"""Find oneDNN's shared library and load the extension module that calls it.

oneDNN's wheel installs the library where the extension's run path points. If the library is not
there (an editable install, another prefix), or if ``VTENSOR_ONEDNN_DIR`` names another build, this
module loads the library first, and the extension uses the loaded one.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from libdesc.schema import Speed
from libdesc.tracing import traced
from vtensor.errors import LibraryError
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.process.openmp import brief_spinning, import_native

if TYPE_CHECKING:
    import libdesc.onednn._onednn as dnnl
else:

    class _AtFirstUse:
        """The extension module, loaded at the first access to an attribute."""

        def __getattr__(self, name: str) -> Any:
            return getattr(traced(load()), name)

    dnnl = _AtFirstUse()

__all__ = ["DIRECTORY_VARIABLE", "dnnl", "find_in_distribution", "load", "preload", "speeds"]

#: Speeds with the instructions of AVX-512. Kernels in f16 convert each operand to f32 before they
#: multiply. Kernels that memory limits take as long in a narrow type as in f32: they convert.
_F16 = {"f16": Speed("AVX512_FP16", 0.5, 0.5)}
_BF16 = {"bf16": Speed("AVX512_BF16", 1.8, 0.5)}
_VNNI = {"s8": Speed("AVX512_VNNI", 3.0)}
_AMX = {"bf16": Speed("AMX", 6.0, 0.5), "s8": Speed("AMX", 10.0)}
#: By the beginning of an instruction set's name: how fast kernels are beside those in f32.
SPEEDS: tuple[tuple[str, dict[str, Speed]], ...] = (
    ("amx_fp16", {"f16": Speed("AMX", 6.0, 0.5), **_AMX}),
    ("amx", {**_F16, **_AMX}),
    ("avx512_fp16", {**_F16, **_BF16, **_VNNI}),
    ("avx512_bf16", {**_BF16, **_VNNI}),
    ("avx512_vnni", _VNNI),
    ("avx2_vnni", {"s8": Speed("AVX_VNNI", 3.0)}),
)

#: The variable with the prefix of another build of oneDNN: its library is in ``lib`` or ``lib64``.
DIRECTORY_VARIABLE = "VTENSOR_ONEDNN_DIR"

_LIBRARY = "libdnnl.so.3"
_DISTRIBUTION = "onednn-cpu-gomp"
EXTENSION = "libdesc.onednn._onednn"


@cache
def load() -> ModuleType:
    """Load oneDNN and return the extension module ``libdesc.onednn._onednn``.

    After the first call, ``from libdesc.onednn import _onednn`` works everywhere; that spelling
    is typed.

    Raises:
        LibraryError: oneDNN or the extension is missing or does not load; the message says why.

    >>> load().version().split(".")[0]
    '3'
    """
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        preload(_in_prefix(Path(chosen)))
    module = _extension()
    if chosen:
        _check_origin(Path(module.library_path()), Path(chosen))
    return module


def speeds() -> dict[str, Speed]:
    """Return how fast oneDNN is on this processor, under the cap, in types other than f32."""
    name = dnnl.isa()
    return next((dict(types) for prefix, types in SPEEDS if name.startswith(prefix)), {})


def _extension() -> ModuleType:
    try:
        return import_native(EXTENSION)
    except ImportError as error:
        if _LIBRARY not in str(error):
            raise LibraryError(f"onednn: the extension module does not load: {error}") from error
        preload(find_in_distribution())
        return _import_preloaded()


def preload(library: Path) -> None:
    """Load a shared library; modules that need a library of the same name then use this one.

    Raises:
        LibraryError: the library cannot be loaded.
    """
    try:
        with brief_spinning():
            ctypes.CDLL(str(library))
    except OSError as error:
        pass_signals(error)
        raise LibraryError(f"onednn: {library} does not load: {error}") from error


def _import_preloaded() -> ModuleType:
    try:
        return import_native(EXTENSION)
    except ImportError as error:
        raise LibraryError(f"onednn: the extension module does not load: {error}") from error


def _in_prefix(prefix: Path) -> Path:
    for folder in ("lib", "lib64"):
        library = prefix / folder / _LIBRARY
        if library.is_file():
            return library
    raise LibraryError(f"onednn: {DIRECTORY_VARIABLE} is {prefix}, which has no lib/{_LIBRARY}")


def find_in_distribution() -> Path:
    """Return the path of oneDNN's library in the installed distribution of oneDNN.

    Raises:
        LibraryError: the distribution is not installed, or lacks the library.
    """
    from importlib import metadata  # slow to import, and rarely needed

    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        raise LibraryError(
            f"onednn: {_LIBRARY} is not found; install {_DISTRIBUTION}, "
            f"or set {DIRECTORY_VARIABLE} to the prefix of a build"
        ) from None
    for file in files:
        if file.name == _LIBRARY:
            return Path(str(file.locate())).resolve()
    raise LibraryError(f"onednn: the installed {_DISTRIBUTION} has no {_LIBRARY}")


def _check_origin(loaded: Path, prefix: Path) -> None:
    if not loaded.resolve().is_relative_to(prefix.resolve()):
        raise LibraryError(
            f"onednn: {DIRECTORY_VARIABLE} is {prefix}, but the process had already loaded {loaded}"
        )
