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

__all__ = ["DIRECTORY_VARIABLE", "dnnl", "find_in_distribution", "load", "preload", "speedups"]

#: By the beginning of an instruction set's name: the element types in which products are faster
#: than in f32, with the name of the instructions, and how many times as fast large products are.
SPEEDUPS: tuple[tuple[str, dict[str, tuple[str, float]]], ...] = (
    ("amx", {"bf16": ("AMX", 6.0), "s8": ("AMX", 10.0)}),
    ("avx512_fp16", {"bf16": ("AVX512_BF16", 1.8), "s8": ("AVX512_VNNI", 3.0)}),
    ("avx512_bf16", {"bf16": ("AVX512_BF16", 1.8), "s8": ("AVX512_VNNI", 3.0)}),
    ("avx512_vnni", {"s8": ("AVX512_VNNI", 3.0)}),
    ("avx2_vnni", {"s8": ("AVX_VNNI", 3.0)}),
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


def speedups() -> dict[str, tuple[str, float]]:
    """Return the element types in which this processor, under the cap, multiplies faster than in
    f32: by name, the instructions and the factor.
    """
    name = dnnl.isa()
    return next((dict(types) for prefix, types in SPEEDUPS if name.startswith(prefix)), {})


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
