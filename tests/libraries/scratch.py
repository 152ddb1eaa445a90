"""A registry to scribble in: what is registered inside the block is gone after it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from libdesc.registry import Registry, installed, registry


def scratch_registry() -> AbstractContextManager[Registry]:
    """A copy of the registry takes its place inside the block."""
    return installed(registry().copy())
