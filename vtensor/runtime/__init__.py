"""Sessions: the plans of a network and the runs of these plans."""

from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the native module, which loads OpenMP's library, at its first use."""
        if name != "_replay":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from vtensor.language.process.openmp import import_native

        return import_native(f"{__name__}.{name}")
