"""Texts as numbers: a hash of 64 bits, the same in every process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vtensor.errors import InputError
from vtensor.language.process.imported import blake2b

Array = np.ndarray[Any, Any]

#: The most texts whose numbers are remembered; beyond it, all are forgotten.
_MOST_KNOWN = 1 << 16

_known: dict[str, int] = {}


def number_of(text: str) -> int:
    """Return the number of a text.

    >>> number_of("a") == number_of("a") != number_of("b")
    True
    """
    number = _known.get(text)
    if number is None:
        data = blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        number = int.from_bytes(data, "little", signed=True)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[text] = number
    return number


def text_array(value: object, name: str) -> Array:
    """Return an array of texts, as objects of type ``str``.

    Raises:
        InputError: an element is no text.
    """
    array = np.asarray(value)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "surrogateescape")
    if array.dtype.kind == "U":
        return array.astype(object)
    if array.dtype.kind != "O":
        raise InputError(f"input {name!r}: texts are wanted, {array.dtype} was given")
    texts = np.empty(array.shape, object)
    for place, item in np.ndenumerate(array):
        text = item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item
        if not isinstance(text, str):
            raise InputError(f"input {name!r}: texts are wanted, {type(item).__name__} was given")
        texts[place] = text
    return texts


def numbers_of(texts: Array, table: dict[int, str]) -> Array:
    """Return the numbers of texts, and add these texts to ``table``.

    Raises:
        InputError: two texts have one number.
    """
    numbers = np.empty(texts.shape, np.int64)
    flat = numbers.reshape(-1)
    for place, text in enumerate(texts.reshape(-1)):
        number = flat[place] = number_of(text)
        if table.setdefault(number, text) != text:
            raise InputError(f"the texts {text!r} and {table[number]!r} have the same hash")
    return numbers


def texts_of(numbers: Array, table: Mapping[int, str]) -> Array:
    """Return the texts of numbers that ``table`` has."""
    texts = np.empty(numbers.shape, object)
    texts.reshape(-1)[:] = [table[number] for number in numbers.reshape(-1).tolist()]
    return texts


def table_of(texts: Iterable[str]) -> dict[int, str]:
    """Return texts by their numbers."""
    table: dict[int, str] = {}
    numbers_of(np.array([*texts, ""], object), table)
    return table
