"""What a known model is from outside: what it takes and gives, and the bytes that it is known by.

A plan that is kept needs no more of a model than this, and its large arrays. An entry of the cache
says where those are and what the others come to; a model whose bytes are others has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optimizer.originals import Original
from vtensor.frontends.known import MOST_BYTES, array_at, data_files, name_of
from vtensor.language.imported import blake2b
from vtensor.language.records import dataclass
from vtensor.runtime.feeds import Port

#: Of a model with more bytes in small arrays nothing is kept: each start would look at all of them.
MOST_SMALL = 1 << 24

if TYPE_CHECKING:
    from vtensor.frontends.external import DataFiles
    from vtensor.frontends.opened import Opened
    from vtensor.runtime.entries import Entries

    Root = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class Surface:
    """A model whose sizes are all known, from outside.

    Attributes:
        inputs, outputs: what a run is given and returns.
        large: the arrays that are read later, by name.
        digest: of all bytes but theirs.
    """

    inputs: list[Port]
    outputs: list[Port]
    large: dict[str, Original]
    digest: str


def read_surface(file: Opened, entries: Entries, max_bytes: int, root: Root) -> Surface | None:
    """What the cache says of a model; None where it says nothing, or of other bytes.

    Args:
        file, entries, max_bytes, root: as for ``read_known``.
    """
    if len(file.parts.rest) > MOST_BYTES or (payload := entries.read(_name(file))) is None:
        return None
    try:
        files, data = data_files(file, max_bytes, root), json.loads(payload)
        if _digest(file, files, data["small"]) != data["digest"]:
            return None
        arrays = {name: array_at(file, files, *row) for name, *row in data["large"]}
        large = {name: one for name, one in arrays.items() if isinstance(one, Original)}
        if len(large) < len(arrays):
            return None
        inputs, outputs = ([_port(*row) for row in data[end]] for end in ("inputs", "outputs"))
        return Surface(inputs, outputs, large, data["digest"])
    except Exception:  # whatever it is, the long way says it better
        return None


def keep_surface(
    file: Opened,
    inputs: list[Port],
    outputs: list[Port],
    large: Mapping[str, Original],
    entries: Entries,
    max_bytes: int,
    root: Root,
) -> Surface | None:
    """Keep what a model is that was read as an entry says; None where it says nothing now, or too
    much would have to be looked at.

    Args:
        file, entries, max_bytes, root: as for ``read_known``.
        inputs, outputs: what a run is given and returns; all sizes are known.
        large: its arrays that are read later, by name.
    """
    if (payload := entries.read(name_of(file))) is None:
        return None
    _, *rows = json.loads(payload)
    files = data_files(file, max_bytes, root)
    small = [place for name, _, _, *place in rows if name not in large and len(place) == 3]
    try:
        digest = _digest(file, files, small)
    except ValueError:
        return None
    ends = {
        end: [(one.name, one.dtype, one.shape, one.dims) for one in ports]
        for end, ports in (("inputs", inputs), ("outputs", outputs))
    }
    own = [row for row in rows if row[0] in large]
    data = {**ends, "large": own, "small": small, "digest": digest}
    entries.write(_name(file), json.dumps(data, separators=(",", ":")).encode())
    return Surface(inputs, outputs, dict(large), digest)


def _name(file: Opened) -> str:
    return f"surface-{file.digest}"


def _port(name: str, dtype: str, shape: list[int], dims: list[str]) -> Port:
    return Port(name, dtype, tuple(map(int, shape)), tuple(dims))


def _digest(file: Opened, files: DataFiles | None, small: Sequence[Sequence[Any]]) -> str:
    """A digest of a model without large arrays.

    Args:
        file: the model.
        files: those beside it.
        small: where in them arrays are that are read at once.

    Raises:
        ValueError: there is too much of that.
    """
    digest = blake2b(file.digest.encode(), digest_size=16)
    inside = [one.bytes for _, one in sorted(file.parts.data.items()) if one.bytes is not None]
    if sum(one.nbytes for one in inside) + sum(nbytes for *_, nbytes in small) > MOST_SMALL:
        raise ValueError("small arrays are large together")
    for one in inside:
        digest.update(one.data)
    for place in small:
        if files is None:
            raise ValueError("a model from memory has no files")
        digest.update(files.read(*place).data)
    return digest.hexdigest()
