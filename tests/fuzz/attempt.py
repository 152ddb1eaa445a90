"""One attempt: load, plan and run a model twice, on inputs drawn from a seed."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.random import Generator

from tests.fuzz.mutate import pick
from vtensor import Session
from vtensor.errors import VTensorError
from vtensor.language.dtype import numpy_dtype
from vtensor.storage.inputs import Port

#: What a session may take: little, so that an attempt is short.
MAX_BYTES = 64 << 20

#: Inputs of the second run in a hundred that are not what the model asks for.
WRONG_PERCENT = 20


def attempt(model: bytes, seed: int) -> tuple[str, str]:
    """``ran``, ``refused`` (a typed error) or ``untyped``, and where."""
    rng = np.random.default_rng(seed)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            with Session(model, threads=1, max_bytes=MAX_BYTES) as session:
                for wrong_percent in (0, WRONG_PERCENT):
                    session.run(None, feeds(rng, session.inputs, wrong_percent))
    except VTensorError as error:
        return "refused", type(error).__name__
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno} {frame.name}"
        return "untyped", f"{type(error).__name__}: {str(error)[:200]} ({where})"
    return "ran", ""


def feeds(rng: Generator, ports: Sequence[Port], wrong_percent: int) -> Mapping[str, Any]:
    """Something for each input; at times not the right thing."""
    size = int(rng.integers(1, 4))
    given = {}
    for port in ports:
        array = _array(rng, port, [size if one is None else one for one in port.shape])
        given[port.name] = _wrong(rng, array) if rng.integers(100) < wrong_percent else array
    if rng.integers(100) * 10 < wrong_percent:
        given["no such input"] = np.zeros(1)
    return given


def _array(rng: Generator, port: Port, shape: Sequence[int]) -> np.ndarray[Any, Any]:
    if prod(max(size, 1) for size in shape) > 1 << 24:
        shape = (1,)
    dtype = numpy_dtype(port.dtype)
    high = pick(rng, [3, 50, 1e30])
    with np.errstate(all="ignore"):
        array = np.asarray(rng.uniform(-high, high, shape)).astype(dtype)
    if rng.integers(8) == 0 and array.size and dtype.kind == "f":
        array.flat[0] = pick(rng, [np.nan, np.inf, -np.inf])
    return array


def _wrong(rng: Generator, array: np.ndarray[Any, Any]) -> Any:
    """The array in another form, element type or shape."""
    return pick(
        rng,
        [
            np.asfortranarray(array),
            array[..., ::-1] if array.ndim else array,
            array.astype(array.dtype.newbyteorder(">")),
            np.ma.masked_invalid(array) if array.dtype.kind == "f" else array,
            np.ascontiguousarray(array).data if array.dtype.isbuiltin == 1 else array,
            array.astype(object),
            array.astype(np.float64),
            array[None],
            array[:0] if array.ndim else array,
            array.tolist(),
            None,
        ],
    )
