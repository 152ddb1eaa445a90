"""What a model is from outside: what it takes and gives, and the bytes that it is known by.

A plan that is kept needs no more of a model than this, and its large arrays. An entry of the cache
says where those are and what the others come to; a model whose bytes are others has none. A large
array at which somebody looked while a graph was made of the model, to fold it for instance, is
among the bytes that it is known by.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from libdesc.installed import state as installed
from optimizer.originals import Original
from vtensor.errors import VTensorError
from vtensor.frontends.deferred_arrays import DeferredArrays
from vtensor.frontends.external import data_files
from vtensor.frontends.saved_text import MOST_BYTES, array_at, check_array
from vtensor.language.dims import dim_names
from vtensor.language.imported import blake2b
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.storage.inputs import Port

#: Of a model with more bytes in small arrays nothing is kept: each start would look at all of them.
MOST_SMALL = 1 << 24

#: The most elements of an input whose value decides shapes, as ``values.LIMIT_ELEMENTS``.
MOST_DECIDING = 1024

if TYPE_CHECKING:
    from vtensor.frontends.deferred_arrays import Place
    from vtensor.frontends.model_file import ModelFile
    from vtensor.storage.entries import Entries

    Root = str | os.PathLike[str] | None


@dataclass(frozen=True, eq=False)
class ModelFingerprint:
    """A model from outside.

    Attributes:
        inputs, outputs: what a run is given and returns.
        static: all sizes are known before any run.
        reads_nodes: graphs are made of its nodes, for some sizes each.
        deciding: inputs whose values decide shapes, as far as runs have shown.
        observed: where arrays beside its bytes are whose values may have decided something.
        deferred: the arrays that are read later, and the files that they are in.
        code: a digest of what is installed.
        digest: of its bytes, and of what was looked at.
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
        """The arrays that are read later, by name."""
        return self.deferred.later


def read_fingerprint(
    file: ModelFile, reference: bool, entries: Entries, max_bytes: int, root: Root
) -> ModelFingerprint | None:
    """What the cache says of a model; None where it says nothing, or of other bytes.

    Args:
        file, entries, max_bytes, root: as for ``read_known``.
        reference: nodes may run on ONNX's reference evaluator.
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
        shared: dict[str, Original] = {}  # tensors that lie in one place
        large: dict[str, Original] = {}
        for array, *row in data["large"]:
            one = shared.get(repr(row)) or array_at(file, files, *row)
            if not isinstance(one, Original):
                return None
            large[array] = shared[repr(row)] = one
        inputs, outputs = (_ports(data[end]) for end in ("inputs", "outputs"))
        deciding = tuple(data["deciding"])
        may_decide = {
            port.name for port in inputs if prod(size or 1 for size in port.shape) <= MOST_DECIDING
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
    except MALFORMED as why:  # whatever it is, the long way says it better
        pass_signals(why)
        return None


def save_fingerprint(
    surface: ModelFingerprint, file: ModelFile, reference: bool, entries: Entries
) -> ModelFingerprint | None:
    """Keep what a model is from outside; None where too much would have to be looked at.

    Args:
        surface: what is to be kept, without a digest.
        file, reference, entries: as for ``read_fingerprint``.
    """
    deferred, code = surface.deferred, _code()
    try:
        digest = _digest(file, deferred, surface.observed)
    except (LookupError, ValueError, VTensorError):  # as where a file was changed: it is not known
        return None
    ends = {
        end: [(one.name, one.dtype, one.shape, one.dims, one.any_rank) for one in ports]
        for end, ports in (("inputs", surface.inputs), ("outputs", surface.outputs))
    }
    data = {
        "file": file.name,
        **ends,
        "static": surface.static,
        "reads_nodes": surface.reads_nodes,
        "deciding": surface.deciding,
        "observed": sorted(surface.observed, key=repr),
        "large": [
            (name, one.dtype.str, one.shape, *deferred.places[name])
            for name, one in deferred.later.items()
        ],
        "digest": digest,
    }
    name = _name(file, reference, code)
    entries.write(name, json.dumps(data, separators=(",", ":")).encode())
    return replace(surface, code=code, digest=digest)


def check_surface(payload: bytes) -> tuple[str, list[Port]]:
    """Check an entry as far as this needs no model.

    Returns:
        The path of the model's file, and the inputs.

    Raises:
        Exception: of ``MALFORMED``, if it is no such entry.
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
    """What is installed, briefly: each plan that is looked for has it in its name."""
    return blake2b(repr(installed()).encode(), digest_size=16).hexdigest()


def _name(file: ModelFile, reference: bool, code: str) -> str:
    facts = repr((file.digest, reference, code))
    return f"surface-{blake2b(facts.encode(), digest_size=16).hexdigest()}"


def _ports(rows: list[Any]) -> list[Port]:
    """Return inputs or outputs as an entry says them.

    Raises:
        Exception: of any kind, where no model has such.
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
    [where, *numbers] = row
    return str(where), *map(int, numbers)  # type: ignore[return-value]


def _digest(file: ModelFile, deferred: DeferredArrays, observed: Collection[Place]) -> str:
    """A digest of a model without the arrays that are read later and at which nobody looked.

    Args:
        file: the model.
        deferred: what is read later of it, and the files beside it.
        observed: where arrays are whose values count all the same.

    Raises:
        ValueError: there is too much of that.
        LookupError: it is not there.
        VTensorError: it cannot be read, or not again.
    """
    digest = blake2b(file.digest.encode(), digest_size=16)
    data, files = file.parts.data, deferred.files
    deferred_places = {place[1] for place in deferred.places.values() if len(place) == 2}
    inside = {
        number
        for number, one in data.items()
        if one.bytes is not None or number not in deferred_places
    }
    inside |= {place[1] for place in observed if len(place) == 2}
    places = sorted(place for place in observed if len(place) == 3)
    if sum(data[one].nbytes for one in inside) + sum(one[2] for one in places) > MOST_SMALL:
        raise ValueError("small arrays are large together")
    for number in sorted(inside):
        digest.update(data[number].now().data)
    for location, offset, nbytes in places:
        if files is None:
            raise ValueError("a model from memory has no files")
        digest.update(files.look(location, offset, nbytes).data)
    return digest.hexdigest()
