"""What Python brings, without what it would load at once and few sessions need.

``hashlib`` loads OpenSSL, ``logging`` compiles patterns of format strings: 4 ms of each start.
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


class _Later:
    """Stands for a logger until there is something to say."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        import logging

        return getattr(logging.getLogger(self._name), name)


def logger(name: str) -> Logger:
    """As ``logging.getLogger``; the module is imported with the first message."""
    return cast("Logger", _Later(name))
