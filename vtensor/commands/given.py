"""The inputs of a command: files of arrays, pictures, values as text, or random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from vtensor.benchmark.agreement import difference
from vtensor.errors import InputError
from vtensor.image import image_for
from vtensor.language.dtype import numpy_dtype
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.user_files import open_plain_file, read_plain_file
from vtensor.language.wording import reason
from vtensor.storage.inputs import noise, random_array

if TYPE_CHECKING:
    from vtensor.runtime.session import Session
    from vtensor.storage.inputs import Array, Port

InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="A file of an input: a picture, .npy, .npz, .pb (TensorProto); or name=FILE. "
        "May be repeated.",
    ),
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option("--value", help="The value of an input: shape=1,3,224. May be repeated."),
]

#: The most bytes of a protocol buffer.
_MAX_PROTO_BYTES = (1 << 31) - 1

#: By name of the input, (element type, sizes). A size is None if each run decides it; the sizes are
#: None if each run decides the rank as well.
Inputs = Mapping[str, tuple[str, tuple[int | None, ...] | None]]


def read_arrays(
    inputs: Inputs,
    files: Sequence[str] | None,
    values: Sequence[str] | None,
    overridable: Inputs | None = None,
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return (arrays, picture files) that the user gives, each by name of the input.

    Pictures are read later, once the input's sizes are known.

    Args:
        inputs: the inputs that a run needs.
        files: texts of ``--input``.
        values: texts of ``--value``.
        overridable: inputs with a default; a file or value is for such an input only if it names
            the input.

    Raises:
        InputError: a file cannot be read, or belongs to no input; or a value is no list of numbers.
    """
    arrays: dict[str, Array] = {}
    pictures: dict[str, str] = {}
    all_inputs = {**inputs, **(overridable or {})}
    for text in files or []:
        name, file = _name_and_file(text, all_inputs)
        if Path(file).suffix not in _READERS:
            pictures[_input_of(name, text, inputs)] = file
            continue
        stored = _read(file)
        wanted = [name] if name else list(stored)
        if all(key in stored and key in all_inputs for key in wanted):
            arrays |= {key: stored[key] for key in wanted}
        elif len(stored) == 1:
            [arrays[_input_of(name, text, inputs)]] = stored.values()
        else:
            raise InputError(f"--input {text}: it holds {', '.join(stored)}; {_listed(inputs)}")
    for text in values or []:
        name, _, numbers = text.rpartition("=")
        if name not in all_inputs:
            raise InputError(f"--value {text}: write it as name=1,2,3; {_listed(all_inputs)}")
        arrays[name] = _parsed(text, numbers, all_inputs[name])
    return arrays, pictures


def difference_of(strict: Session, other: Session, arrays: Mapping[str, Array]) -> float:
    """Return the largest difference between the outputs of two sessions of one model.

    It is relative to the largest element of the same output.

    Args:
        strict: the session whose outputs are taken as right.
        other: the other one.
        arrays: the given arrays by name; other inputs get random numbers from a fixed seed.
    """
    ports = strict.inputs
    feeds = noise(ports, {p.name: arrays[p.name] for p in ports if p.name in arrays})
    return difference(strict.run(None, feeds), other.run(None, feeds))


def make_feeds(
    ports: Sequence[Port],
    arrays: Mapping[str, Array],
    pictures: Mapping[str, str],
    preprocess: str,
) -> tuple[dict[str, Array], list[str]]:
    """Return (arrays by name of the input, names of the inputs that have random numbers).

    Inputs for which nothing is given have random numbers from a fixed seed.

    Args:
        ports: the inputs.
        arrays: the given arrays by name.
        pictures: the files of given pictures by name.
        preprocess: the name of the pictures' preprocessing.

    Raises:
        InputError: a picture cannot be read, or does not fit its input.
    """
    generator = np.random.default_rng(0)
    feeds, made_up = {}, []
    for port in ports:
        if port.name in arrays:
            feeds[port.name] = arrays[port.name]
        elif port.name in pictures:
            sizes = tuple(size or 0 for size in port.shape)
            feeds[port.name] = image_for(sizes, pictures[port.name], preprocess)
        else:
            made_up.append(port.name)
            feeds[port.name] = random_array(port, generator)
    return feeds, made_up


def _name_and_file(text: str, inputs: Inputs) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    return (name, file) if equals and name in inputs else ("", text)


def _input_of(name: str, text: str, inputs: Inputs) -> str:
    """Return the name of the input that a file is for: ``name``, or the only input if that is
    empty.

    Args:
        name: the input's name in the text of ``--input``; empty if the text names none.
        text: that text, for errors.
        inputs: the inputs that a run needs.

    Raises:
        InputError: the name is empty, and there is not exactly one input.
    """
    if not name and len(inputs) != 1:
        raise InputError(f"--input {text}: write name=FILE; {_listed(inputs)}")
    return name or next(iter(inputs))


def _listed(inputs: Inputs) -> str:
    return f"inputs are {', '.join(inputs) or 'none'}"


def _parsed(text: str, numbers: str, kind: tuple[str, tuple[int | None, ...] | None]) -> Array:
    dtype, shape = kind
    number = float if "f" in dtype else int
    try:
        values = [number(part) for part in numbers.split(",")] if numbers else []
        with np.errstate(over="raise"):
            array = np.array(values, numpy_dtype(dtype))
        if number is int and array.tolist() != values:  # ml_dtypes' integers wrap around
            raise OverflowError
    except (ValueError, ArithmeticError):
        raise InputError(f"--value {text}: {numbers!r} is no list of numbers of {dtype}") from None
    return array.reshape(()) if shape == () and array.size == 1 else array


def _read(file: str) -> dict[str, Array]:
    """Return the arrays in a file, by the names that they have in it.

    Raises:
        InputError: the file cannot be read.
    """
    suffix = Path(file).suffix
    try:
        return _READERS[suffix](file)
    except Exception as error:  # the readers of three formats may raise any kind
        pass_signals(error)
        raise InputError(f"{file}: cannot be read as a {suffix} file: {reason(error)}") from error


def _read_npy(file: str) -> dict[str, Array]:
    with open_plain_file(file) as stream:
        return {"": np.load(stream, allow_pickle=False)}


def _read_npz(file: str) -> dict[str, Array]:
    with open_plain_file(file) as stream, np.load(stream, allow_pickle=False) as stored:
        return dict(stored)


def _read_pb(file: str) -> dict[str, Array]:
    from onnx import TensorProto

    from vtensor.frontends.tensors import tensor_array

    tensor = TensorProto.FromString(read_plain_file(file, _MAX_PROTO_BYTES))
    return {tensor.name: tensor_array(tensor, None)}


_READERS: dict[str, Callable[[str], dict[str, Array]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pb": _read_pb,
}
