"""What a command is given for inputs: files of arrays, pictures, values as text, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from vtensor.errors import InputError
from vtensor.image import image_for
from vtensor.language.dtype import numpy_dtype
from vtensor.language.interrupts import pass_signals
from vtensor.language.user_files import open_plain_file, read_plain_file
from vtensor.language.wording import reason
from vtensor.storage.inputs import random_array

if TYPE_CHECKING:
    from vtensor.storage.inputs import Array, Port

InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        help="A picture, .npy, .npz or .pb (TensorProto) file, or name=FILE. May be repeated.",
    ),
]
ValueOption = Annotated[
    list[str] | None,
    typer.Option("--value", help="An input's value: shape=1,3,224. May be repeated."),
]

#: The most bytes of a protocol buffer.
_MOST_PROTO = (1 << 31) - 1

#: Of each input its element type and sizes, None where a run decides them, or the rank as well.
Inputs = Mapping[str, tuple[str, tuple[int | None, ...] | None]]


def read_arrays(
    inputs: Inputs,
    files: Sequence[str] | None,
    values: Sequence[str] | None,
    overridable: Inputs | None = None,
) -> tuple[dict[str, Array], dict[str, str]]:
    """What is given for inputs: arrays by name, and pictures, which wait for the input's sizes.

    Args:
        inputs: what a run has to be given.
        files: texts of ``--input``.
        values: texts of ``--value``.
        overridable: inputs with a default, which are taken by their names alone.

    Raises:
        InputError: a file cannot be read, or belongs to no input; a value is no list of numbers.
    """
    arrays: dict[str, Array] = {}
    pictures: dict[str, str] = {}
    every = {**inputs, **(overridable or {})}
    for text in files or []:
        name, file = _name_and_file(text, every)
        if Path(file).suffix not in _READERS:
            pictures[_only(name, text, inputs)] = file
            continue
        found = _read(file)
        wanted = [name] if name else list(found)
        if all(key in found and key in every for key in wanted):
            arrays |= {key: found[key] for key in wanted}
        elif len(found) == 1:
            [arrays[_only(name, text, inputs)]] = found.values()
        else:
            raise InputError(f"--input {text}: it holds {', '.join(found)}; {_listed(inputs)}")
    for text in values or []:
        name, _, numbers = text.rpartition("=")
        if name not in every:
            raise InputError(f"--value {text}: write it as name=1,2,3; {_listed(every)}")
        arrays[name] = _parsed(text, numbers, every[name])
    return arrays, pictures


def make_feeds(
    ports: Sequence[Port],
    arrays: Mapping[str, Array],
    pictures: Mapping[str, str],
    preprocess: str,
) -> tuple[dict[str, Array], list[str]]:
    """An array for each input, and the names of those that are made up: seeded random numbers.

    Raises:
        InputError: a picture cannot be read, or does not go into its input.
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


def _only(name: str, text: str, inputs: Inputs) -> str:
    """The input that a file without a name belongs to."""
    if not name and len(inputs) != 1:
        raise InputError(f"--input {text}: write name=FILE; {_listed(inputs)}")
    return name or next(iter(inputs))


def _listed(inputs: Inputs) -> str:
    return f"inputs are {', '.join(inputs) or 'none'}"


def _parsed(text: str, numbers: str, kind: tuple[str, tuple[int | None, ...] | None]) -> Array:
    dtype, shape = kind
    number = float if "f" in dtype else int
    try:
        values = [number(one) for one in numbers.split(",")] if numbers else []
        with np.errstate(over="raise"):
            array = np.array(values, numpy_dtype(dtype))
        if number is int and array.tolist() != values:  # ml_dtypes' integers wrap around
            raise OverflowError
    except (ValueError, ArithmeticError):
        raise InputError(f"--value {text}: {numbers!r} is no list of numbers of {dtype}") from None
    return array.reshape(()) if shape == () and array.size == 1 else array


def _read(file: str) -> dict[str, Array]:
    """The arrays of a file, by the names that it has for them."""
    suffix = Path(file).suffix
    try:
        return _READERS[suffix](file)
    except Exception as error:  # whatever the readers of three formats meet in a damaged file
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

    tensor = TensorProto.FromString(read_plain_file(file, _MOST_PROTO))
    return {tensor.name: tensor_array(tensor, None)}


_READERS: dict[str, Callable[[str], dict[str, Array]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pb": _read_pb,
}
