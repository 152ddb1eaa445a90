"""A model's file or bytes before they are parsed.

The raw data of large weights is kept apart from the other bytes, so that it can be read later.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vtensor import __version__
from vtensor.errors import ModelError
from vtensor.frontends.files.inline import Parts, parts_of_bytes, parts_of_file
from vtensor.language.cached import cached_property
from vtensor.language.process.imported import blake2b
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.wording import reason
from vtensor.storage.entries import code_state
from vtensor.storage.open_file import OpenFile, settled


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A model as it was read.

    Attributes:
        parts: its bytes: the raw data of large weights, and the rest.
        label: name of the model in errors.
        path: absolute path of its file; None for a model from memory.
        part: the digest of a part of the model, if only that is meant; else empty.
    """

    parts: Parts
    label: str
    path: Path | None
    part: str = ""

    @property
    def held(self) -> int:
        """Number of the model's bytes that are in memory."""
        in_memory = (data for data in self.parts.data.values() if data.bytes is not None)
        return len(self.parts.rest) + sum(data.nbytes for data in in_memory)

    @property
    def name(self) -> str:
        """The path as text, for cache entries; empty for a model from memory."""
        return "" if self.path is None else str(self.path)

    @cached_property
    def digest(self) -> str:
        """Digest of VTensor's code and of the model's bytes except large weights, in hex."""
        size, places = self.parts.size, sorted(self.parts.data)
        facts = repr((__version__, code_state(), size, places, *filter(None, [self.part])))
        digest = blake2b(facts.encode(), digest_size=16)
        digest.update(self.parts.rest)
        return digest.hexdigest()


def opened(model: object) -> ModelFile:
    """Return a model, given as the path of its file or as its bytes, before it is parsed.

    Raises:
        ModelError: there is no such file, it is empty, or it was changed while it was read.
    """
    label, path = "model from memory", None
    if isinstance(model, bytes):
        parts = parts_of_bytes(model)
    elif not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"{type(model).__name__} is no model: give a path, bytes, a ModelProto or a Graph"
        )
    else:
        path = Path(model)
        label = f"model {str(path)!r}"
        try:
            if path.is_dir():
                raise ModelError(f"{label} is a folder, not an ONNX file")
            parts = _read(path, label)
            path = path.absolute()
        except FileNotFoundError:
            raise ModelError(f"{label} does not exist") from None
        except (OSError, ValueError) as error:
            pass_signals(error)
            raise ModelError(f"{label} cannot be read: {reason(error)}") from error
    if not parts.size:
        raise ModelError(f"{label} is empty")
    return ModelFile(parts, label, path)


def _read(path: Path, label: str) -> Parts:
    """Return a file's bytes: the raw data of large weights apart from the rest.

    ``label`` is the file's name in errors.

    Raises:
        ModelError: the file is a device, or was changed while it was read.
    """
    # A blocking open of a pipe would wait for a writer. With this open, a pipe without a writer is
    # read as empty.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
        facts = os.fstat(file.fileno())
        if stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode):
            raise ModelError(f"{label} is a device, not an ONNX file")
        os.set_blocking(descriptor, True)
        if not stat.S_ISREG(facts.st_mode):  # a pipe: it has no size, and can be read only once
            return parts_of_bytes(file.readall())
        reopenable = OpenFile(file.fileno(), settled(file.fileno()), label)
        parts = parts_of_file(reopenable) or parts_of_bytes(file.readall())
        reopenable.check()
        return parts
