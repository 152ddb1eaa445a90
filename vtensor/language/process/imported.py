"""Parts of two standard modules, without the slow import of the whole module.

``hashlib`` loads OpenSSL, and ``logging`` compiles regular expressions; few sessions need either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
    from logging import Logger
else:
    try:
        from _blake2 import blake2b as blake2b
    except ImportError:  # another Python than CPython
        from hashlib import blake2b as blake2b


class _LazyLogger:
    """A stand-in for a logger that imports ``logging`` with the first message."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), name)


def logger(name: str) -> Logger:
    """Return the logger of a name; ``logging`` is imported when it gets its first message."""
    return cast("Logger", _LazyLogger(name))
