"""Base class of objects that belong to one process because they hold its threads, kernels and
memory.
"""

from __future__ import annotations

from typing import NoReturn

from vtensor.errors import PickleError


class OneProcess:
    """Base of objects that are neither copied nor pickled."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuse ``copy.copy``, ``copy.deepcopy`` and ``pickle``.

        Raises:
            PickleError: always; the message says what to do instead.
        """
        raise PickleError(
            f"a {type(self).__name__} is neither copied nor pickled: it has threads, kernels and "
            "memory of this process\n  to fix: send the model's path or bytes, and open a Session "
            "in each process; the threads of a process can share a Session"
        )
