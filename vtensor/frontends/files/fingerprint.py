"""A model's fingerprint: its inputs and outputs, and the bytes that identify it.

A cached plan needs no more of a model than its fingerprint and its large arrays. A cache entry says
where the bytes of the large arrays are, and holds a digest of all other bytes. If a model's bytes
have another digest, the entry does not count. A large array whose values were read while a graph
was made of the model, for instance to
fold it, is among the bytes that identify the model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from libdesc.installed import state as installed
from optimizer.constants.originals import Original
from vtensor.errors import VTensorError
from vtensor.frontends.files.deferred_arrays import DeferredArrays
from vtensor.frontends.files.external import data_files
from vtensor.frontends.files.saved_text import MOST_BYTES, array_at, check_array
from vtensor.language.dims import dim_names
from vtensor.language.process.imported import blake2b
from vtensor.language.process.interrupts import MALFORMED, pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.storage.inputs import Port

#: Largest total size, in bytes, of the arrays that identify a model. A model with more has no cache
#: entry: each start would read all of them.
MAX_IDENTIFYING_BYTES = 1 << 24

#: Largest number of elements of an input whose value decides shapes, as ``values.LIMIT_ELEMENTS``.
MAX_DECIDING_ELEMENTS = 1024

if TYPE_CHECKING:
    from vtensor.frontends.files.deferred_arrays import Place
    from vtensor.frontends.files.model_file import ModelFile
    from vtensor.storage.entries import Entries

    Root = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class ModelFingerprint:
    """Identity and interface of a model.

    Attributes:
        inputs, outputs: name, type, shape and dim names of each input and output.
        static: whether all sizes are known before any run.
        reads_nodes: whether a graph is built from the model's nodes for each combination of sizes;
            False if one graph serves all: its sizes are known, or it is that of the model's text.
        deciding: names of the inputs whose values decide shapes, as far as runs have found out.
        observed: places of the deferred arrays whose values may have decided something.
        deferred: the arrays that are read on demand, and the files that they are in.
        code: digest of the installed distributions and settings.
        digest: digest of the model's bytes and of the observed arrays.
    """

    inputs: list[Port]
    outputs: list[Port]
    static: bool
    reads_nodes: bool
    deciding: tuple[str, ...]
    observed: frozenset[Place]
    deferred: DeferredArrays
    code: str = ""
    digest: str = ""

    @property
    def large(self) -> Mapping[str, Original]:
        """The arrays that are read on demand, by name."""
        return self.deferred.later


def read_fingerprint(
    file: ModelFile, reference: bool, entries: Entries, max_bytes: int, root: Root
) -> ModelFingerprint | None:
    """Return a model's fingerprint from the cache.

    None if there is no entry, or the model's bytes differ from it.

    Args:
        file: the model.
        reference: whether nodes may run on ONNX's reference evaluator.
        entries: the cache.
        max_bytes: limit of the data that is read, in bytes.
        root: folder of external data; None is the model's folder.
    """
    if len(file.parts.rest) > MOST_BYTES:
        return None
    code = _code()
    if (payload := entries.read(_name(file, reference, code))) is None:
        return None
    try:
        files, data = data_files(file.path, root, max_bytes), json.loads(payload)
        observed = frozenset(map(_place, data["observed"]))
        places = {name: _place(place) for name, _, _, *place in data["large"]}
        if _digest(file, DeferredArrays({}, places, files), observed) != data["digest"]:
            return None
        shared: dict[str, Original] = {}  # tensors of the same bytes share their memory
        large: dict[str, Original] = {}
        for array, *row in data["large"]:
            origin = shared.get(repr(row)) or array_at(file, files, *row)
            if not isinstance(origin, Original):
                return None
            large[array] = shared[repr(row)] = origin
        inputs, outputs = (_ports(data[end]) for end in ("inputs", "outputs"))
        deciding = tuple(data["deciding"])
        may_decide = {
            port.name
            for port in inputs
            if prod(size or 1 for size in port.shape) <= MAX_DECIDING_ELEMENTS
        }
        static = data["static"] is True
        open_sizes = any(None in port.shape for port in inputs)
        if not outputs or not may_decide.issuperset(deciding) or (static and open_sizes):
            raise ValueError("no model is such")
        return ModelFingerprint(
            inputs,
            outputs,
            static,
            data["reads_nodes"] is True,
            deciding,
            observed,
            DeferredArrays(large, places, files),
            code,
            data["digest"],
        )
    except MALFORMED as why:  # the full read of the model reports what is wrong
        pass_signals(why)
        return None


def save_fingerprint(
    fingerprint: ModelFingerprint, file: ModelFile, reference: bool, entries: Entries
) -> ModelFingerprint | None:
    """Write a model's fingerprint to the cache and return it with ``code`` and ``digest`` filled
    in.

    If the digest would take too many bytes, or a file was changed, nothing is written and the
    result is None.

    Args:
        fingerprint: the fingerprint, still without digests.
        file: the model.
        reference: whether nodes may run on ONNX's reference evaluator.
        entries: the cache.
    """
    deferred, code = fingerprint.deferred, _code()
    try:
        digest = _digest(file, deferred, fingerprint.observed)
    except (LookupError, ValueError, VTensorError):  # a changed file, for instance
        return None
    ends = {
        end: [(port.name, port.dtype, port.shape, port.dims, port.any_rank) for port in ports]
        for end, ports in (("inputs", fingerprint.inputs), ("outputs", fingerprint.outputs))
    }
    data = {
        "file": file.name,
        **ends,
        "static": fingerprint.static,
        "reads_nodes": fingerprint.reads_nodes,
        "deciding": fingerprint.deciding,
        "observed": sorted(fingerprint.observed, key=repr),
        "large": [
            (name, array.dtype.str, array.shape, *deferred.places[name])
            for name, array in deferred.later.items()
        ],
        "digest": digest,
    }
    name = _name(file, reference, code)
    entries.write(name, json.dumps(data, separators=(",", ":")).encode())
    return replace(fingerprint, code=code, digest=digest)


def check_surface(payload: bytes) -> tuple[str, list[Port]]:
    """Check a fingerprint's cache entry, as far as that is possible without the model.

    Returns:
        (path of the model's file, ports of its inputs).

    Raises:
        Exception: of a kind in ``MALFORMED``, if the bytes are no such entry.
    """
    data = json.loads(payload)
    inputs, outputs = (_ports(data[end]) for end in ("inputs", "outputs"))
    for place in data["observed"]:
        _place(place)
    for row in data["large"]:
        check_array(*row)
    if not outputs or type(data["file"]) is not str or type(data["digest"]) is not str:
        raise ValueError("no model is such")
    return data["file"], inputs


def _code() -> str:
    """Return a digest of the installed distributions and settings, a part of each entry's name."""
    return blake2b(repr(installed()).encode(), digest_size=16).hexdigest()


def _name(file: ModelFile, reference: bool, code: str) -> str:
    """Return the name of the cache entry of a model's fingerprint.

    Args:
        file: the model.
        reference: whether nodes may run on ONNX's reference evaluator.
        code: digest of the installed distributions and settings.
    """
    facts = repr((file.digest, reference, code))
    return f"surface-{blake2b(facts.encode(), digest_size=16).hexdigest()}"


def _ports(rows: list[Any]) -> list[Port]:
    """Return the ports that the rows of a cache entry describe.

    Raises:
        Exception: of any kind, if no model has such ports.
    """
    ports = [
        Port(name, dtype, tuple(shape), tuple(dims), any_rank is True)
        for name, dtype, shape, dims, any_rank in rows
    ]
    for port in ports:
        whole = all(size is None or type(size) is int for size in port.shape)
        if type(port.name) is not str or not whole or (port.any_rank and port.shape):
            raise ValueError("a name, a size or a rank is none")
        sizes = zip(dim_names(port.dims), port.shape, strict=True)
        VTensor(port.dtype, {dim: 1 if size is None else size for dim, size in sizes})
    if len({port.name for port in ports} | {""}) <= len(ports):
        raise ValueError("a name is there twice, or empty")
    return ports


def _place(row: list[Any]) -> Place:
    """Return the place of an array's bytes from a row of a cache entry."""
    [where, *numbers] = row
    return str(where), *map(int, numbers)  # type: ignore[return-value]


def _digest(file: ModelFile, deferred: DeferredArrays, observed: Collection[Place]) -> str:
    """Return a digest of a model's bytes; of the deferred arrays, only those in ``observed`` count.

    Args:
        file: the model.
        deferred: its deferred arrays and its files.
        observed: places of the deferred arrays whose values may have decided something.

    Raises:
        ValueError: more than MAX_IDENTIFYING_BYTES would be read.
        LookupError: an array is not there.
        VTensorError: an array cannot be read, or not again.
    """
    digest = blake2b(file.digest.encode(), digest_size=16)
    data, files = file.parts.data, deferred.files
    deferred_places = {place[1] for place in deferred.places.values() if len(place) == 2}
    inside = {
        number
        for number, separate in data.items()
        if separate.bytes is not None or number not in deferred_places
    }
    inside |= {place[1] for place in observed if len(place) == 2}
    places = sorted(place for place in observed if len(place) == 3)
    nbytes = sum(data[number].nbytes for number in inside) + sum(place[2] for place in places)
    if nbytes > MAX_IDENTIFYING_BYTES:
        raise ValueError("small arrays are large together")
    for number in sorted(inside):
        digest.update(data[number].now().data)
    for location, offset, nbytes in places:
        if files is None:
            raise ValueError("a model from memory has no files")
        digest.update(files.look(location, offset, nbytes).data)
    return digest.hexdigest()
