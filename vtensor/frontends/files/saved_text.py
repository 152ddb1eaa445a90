"""Known models: models that carry their graph's text, which an earlier process has checked.

They are read without ONNX. The check that the text agrees with the model's nodes (``stored.py``)
takes ONNX's classes and schemas, a large part of a small model's start. Its result depends only on
the model's bytes without the data of large weights. The cache entry that is named by their digest
says where the text and the bytes of each array are. If anything is unusual, such as a missing entry
or weight, the model is read in full, and faults are reported then.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.constants.originals import Original, Originals, one_memory
from vtensor.frontends.files.deferred_arrays import DeferredArrays
from vtensor.frontends.files.external import DataFiles, data_files
from vtensor.language.process.interrupts import MALFORMED, pass_signals
from vtensor.storage.open_file import LATER, Data

if TYPE_CHECKING:
    from vtensor.frontends.files.model_file import ModelFile
    from vtensor.frontends.files.stored import StoredText
    from vtensor.language.graph import Graph
    from vtensor.storage.entries import Entries

Array = np.ndarray[Any, Any]

#: A model gets a cache entry only if it has at most so many bytes, without the data of large
#: weights. For more, their digest would take longer than reading the model in full.
MOST_BYTES = 1 << 26

#: Element types whose bytes in a model are NumPy's bytes in memory.
_MEMORY_DTYPES = frozenset(np.dtype(kind).str for kind in "?bBhHiIqQefd")


def read_known(
    file: ModelFile,
    entries: Entries,
    max_bytes: int,
    external_data_root: str | os.PathLike[str] | None,
    earlier: DeferredArrays | None = None,
) -> tuple[Graph, DeferredArrays] | None:
    """Return (graph, deferred arrays) of a known model; None if the cache has no valid entry of it.

    Args:
        file: the model.
        entries: the cache.
        max_bytes: limit of the data that is read, in bytes.
        external_data_root: folder of external data; None is the model's folder.
        earlier: the deferred arrays of an earlier read of the same bytes, which are used again.
    """
    if len(file.parts.rest) > MOST_BYTES or (payload := entries.read(name_of(file))) is None:
        return None
    from libdesc.registry import ready
    from vtensor.language.graph import Graph

    try:
        have, files = ({}, None) if earlier is None else (earlier.later, earlier.files)
        files = files or data_files(file.path, external_data_root, max_bytes)
        (begin, end, _), *rows = json.loads(payload)
        text = file.parts.rest[begin:end].decode()
        ready()  # fills the registry, through which operators are found
        arrays = {name: have.get(name) or array_at(file, files, *row) for name, *row in rows}
        graph = Graph.parse(text, {name: _stand_in(a) for name, a in arrays.items()}).seal()
        constants: dict[str, Array | Original] = dict(graph.constants)
        for name in constants.keys() & arrays.keys():
            if isinstance(array := arrays[name], Original):
                constants[name] = array.reshape(graph.constants[name].shape)
        later = {name: array for name, array in arrays.items() if isinstance(array, Original)}
        places = {name: tuple(place) for name, _, _, *place in rows}
        return replace(graph, constants=Originals.of(constants)), DeferredArrays(
            later, places, files
        )
    except MALFORMED as why:  # the full read of the model reports what is wrong
        pass_signals(why)
        return None


def save_known(file: ModelFile, stored: StoredText, graph: Graph, entries: Entries) -> None:
    """Write a cache entry that says where the bytes of a model's text and arrays are.

    Nothing is written if the check of the text compared values of large weights. The entry's name
    depends on the other bytes alone, so the check would not hold for other values.

    Args:
        file: the model.
        stored: the text that it carries, and its arrays.
        graph: the graph of the text.
        entries: the cache.
    """
    text = stored.text.encode()
    if len(file.parts.rest) > MOST_BYTES or (begin := file.parts.rest.find(text)) < 0:
        return
    rows: list[Any] = [(begin, begin + len(text), file.name)]
    constants = graph.constants
    origins = constants.origins() if isinstance(constants, Originals) else constants
    for name, array in stored.arrays.origins().items():
        place = stored.places.get(name)
        if place is None or array.dtype.str not in _MEMORY_DTYPES:
            return
        constant = origins.get(name)
        if len(place) > 1 and (constant is None or not one_memory(constant, array)):
            return  # the values of a large weight were compared
        if constant is not None:
            rows.append((name, array.dtype.str, array.shape, *place))
    entries.write(name_of(file), json.dumps(rows, separators=(",", ":")).encode())


def check_known(payload: bytes) -> str:
    """Check a known model's cache entry, as far as that is possible without the model.

    Returns:
        The path of the model's file.

    Raises:
        Exception: of a kind in ``MALFORMED``, if the bytes are no such entry.
    """
    (begin, end, file), *rows = json.loads(payload)
    if not 0 <= begin <= end or type(file) is not str:
        raise ValueError("no text is there")
    for row in rows:
        check_array(*row)
    return file


def check_array(name: str, kind: str, sizes: list[int], *place: Any) -> None:
    """Check a row of a cache entry, which describes an array, as far as that needs no model.

    Args:
        name: name of the array.
        kind: the element type, as NumPy's text, such as ``<f4``.
        sizes: shape of the array.
        place: where the array's bytes are (``Place``).

    Raises:
        Exception: of a kind in ``MALFORMED``, if no array has such a row.
    """
    if type(name) is not str or kind not in _MEMORY_DTYPES or min(sizes, default=0) < 0:
        raise ValueError(f"{name!r:.80} is no array")
    numbers = place if len(place) == 1 else place[1:]
    if len(place) not in (1, 2, 3) or not all(type(number) is int for number in numbers):
        raise ValueError(f"{name!r:.80} has no place")


def array_at(
    file: ModelFile, files: DataFiles | None, kind: str, sizes: list[int], *place: Any
) -> Array | Original:
    """Return the array that a row of a cache entry describes; an ``Original`` if it is read on
    demand.

    Args:
        file, files: the model and its files of external data.
        kind: the element type, as NumPy's text, such as ``<f4``.
        sizes: shape of the array.
        place: where the array's bytes are (``Place``).

    Raises:
        ValueError: the bytes at ``place`` are no array of this type and shape.
        Exception: of a kind in ``MALFORMED``, if the row is malformed.
    """
    if kind not in _MEMORY_DTYPES or sys.byteorder != "little":
        raise ValueError(f"{kind} has no place")
    dtype, shape = np.dtype(kind), tuple(sizes)
    if len(place) == 1:
        array = np.frombuffer(file.parts.rest, dtype, prod(shape), *place).copy()
        array.flags.writeable = False
        return array.reshape(shape)
    if len(place) == 2:
        data = file.parts.data[place[1]]
    elif files is None:
        raise ValueError("a model from memory has no files")
    else:
        late = files.later(*place) if place[2] >= LATER else None
        data = late or Data(files.read(*place), place[2])
    if data.nbytes != prod(shape) * dtype.itemsize:
        raise ValueError("an array is of another size than its data")
    if data.bytes is None:
        return Original.deferred(shape, dtype, data.reader)
    return np.require(data.bytes.view(dtype).reshape(shape), requirements="A")


def _stand_in(array: Array | Original) -> Array:
    """Return an array itself; for an ``Original``, return zeros of its type and shape.

    Such zeros take no memory. Parsing a graph's text needs no more, since it reads no elements.
    """
    if isinstance(array, Original):
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)
    return array


def name_of(file: ModelFile) -> str:
    """Return the name of a known model's cache entry."""
    return f"model-{file.digest}"
