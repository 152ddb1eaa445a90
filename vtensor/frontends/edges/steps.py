"""The operators of Python steps, as functions of arrays, texts, lists and dicts.

A function takes an operator's attributes by name, and its inputs; None is an input that is left
out. It returns the outputs. An attribute that holds a graph is a function there, which takes a list
of the graph's inputs and returns its outputs; such a step has an attribute ``max_bytes``, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ptensor.background_work import checkpoint
from vtensor.errors import BudgetError, InputError
from vtensor.storage.budget import REMEDY, max_bytes_of

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]
Step = Callable[..., Iterable[Any]]

#: Texts that ONNX writes for numbers that are not finite, and reads.
_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _place(position: Any, size: int, end: int) -> int:
    """Return an index into a sequence of ``size``, from 0; ``end`` is the first too large one."""
    place = int(np.asarray(position).item())
    if not -size <= place < end:
        raise InputError(f"position {place} in a sequence of {size}")
    return place + size if place < 0 else place


def _at(_: Attributes, items: list[Any], position: Any) -> Sequence[Any]:
    return [items[_place(position, len(items), len(items))]]


def _insert(_: Attributes, items: list[Any], item: Any, position: Any = None) -> Sequence[Any]:
    size = len(items)
    at = size if position is None else _place(position, size, size + 1)
    return [[*items[:at], item, *items[at:]]]


def _erase(_: Attributes, items: list[Any], position: Any = None) -> Sequence[Any]:
    at = _place(-1 if position is None else position, len(items), len(items))
    return [[*items[:at], *items[at + 1 :]]]


def _split(attributes: Attributes, x: Array, split: Any = None) -> Sequence[Any]:
    axis = attributes.get("axis", 0)
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"axis {axis} of a value of {x.ndim} dims")
    size = x.shape[axis]
    if split is None:
        parts = np.split(x, range(1, size), axis) if size else []
        if not attributes.get("keepdims", 1):
            parts = [part.squeeze(axis) for part in parts]
        return [parts]
    if np.ndim(split) == 0:
        if int(split) < 1:
            raise InputError(f"parts of {int(split)} elements")
        ends = [*range(int(split), size, int(split))]
        return [np.split(x, ends, axis)]
    lengths = [int(length) for length in np.ravel(split)]
    if sum(lengths) != size or min(lengths, default=0) < 0:
        raise InputError(f"parts of {lengths} elements of {size}")
    return [np.split(x, np.cumsum(lengths)[:-1], axis) if lengths else []]


def _joined(attributes: Attributes, items: list[Any]) -> Sequence[Any]:
    join = np.stack if attributes.get("new_axis", 0) else np.concatenate
    try:
        return [join(items, axis=attributes["axis"])]
    except ValueError as error:
        raise InputError(f"elements of a sequence cannot be joined: {error}") from None


def _mapped(attributes: Attributes, *inputs: Any) -> Iterable[Any]:
    """Run a graph on the elements of sequences, place by place; other inputs are the same.

    Without elements, each output is an empty list.
    """
    lengths = {len(x) for x in inputs if isinstance(x, list)}
    if len(lengths) != 1 or not isinstance(inputs[0], list):
        raise InputError(f"its sequences have the lengths {sorted(lengths)}")
    rows = [
        attributes["body"]([x[place] if isinstance(x, list) else x for x in inputs])
        for place in range(lengths.pop())
    ]
    return ([*column] for column in zip(*rows, strict=True)) if rows else iter(list, None)


def _chosen(attributes: Attributes, condition: Any) -> Iterable[Any]:
    """Run one of two graphs: If."""
    results: Iterable[Any] = attributes["then_branch" if _number(condition) else "else_branch"]([])
    return results


def _looped(
    attributes: Attributes, most: Any = None, condition: Any = None, *states: Any
) -> Iterable[Any]:
    """Run a graph turn by turn: Loop. Its states may be sequences and absent optional values.

    Raises:
        BudgetError: the values of the turns take more bytes than a network may.
    """
    limit, rows = max_bytes_of(attributes["max_bytes"]), list[Sequence[Any]]()
    turns, held = None if most is None else _number(most), 0
    goes_on = condition is None or bool(_number(condition))
    while goes_on and (turns is None or len(rows) < turns):
        checkpoint()
        given = [np.array(len(rows), np.int64), np.array(True), *states]
        head, *results = attributes["body"](given)
        goes_on, states = bool(_number(head)), tuple(results[: len(states)])
        rows.append(results[len(states) :])
        held += _bytes_of(rows[-1])
        if held + _bytes_of(states) > limit:
            raise BudgetError(
                f"{len(rows)} turns take more than {limit} bytes, the budget\n  to fix: {REMEDY}"
            )
    return [*states, *(np.stack(column) for column in zip(*rows, strict=True))]


def _number(value: Any) -> int:
    if np.size(value) != 1:
        raise InputError(f"one number must decide what runs: {np.shape(value)}")
    return int(np.asarray(value).item())


def _bytes_of(values: Iterable[Any]) -> int:
    """Return the bytes of arrays, and of those in lists."""
    return sum(
        _bytes_of(value) if isinstance(value, list) else np.asarray(value).nbytes
        for value in values
    )


def _value(_: Attributes, x: Any) -> Sequence[Any]:
    if x is None:
        raise InputError("an optional value is absent")
    return [x]


def _each(function: Callable[[str], Any], x: Array, dtype: Any = object) -> Array:
    result = np.empty(x.shape, dtype)
    result.reshape(-1)[:] = [function(text) for text in x.reshape(-1).tolist()]
    return result


def _normalized(attributes: Attributes, x: Array) -> Sequence[Any]:
    if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != 1):
        raise InputError(f"StringNormalizer: texts of shape {x.shape}, not [C] or [1, C]")
    stop, exact = {*attributes.get("stopwords", [])}, attributes.get("is_case_sensitive", 0)
    if not exact:
        stop = {word.lower() for word in stop}
    kept = [text for text in x.reshape(-1) if (text if exact else text.lower()) not in stop]
    action = attributes.get("case_change_action", "NONE")
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(action, str)
    texts = [change(text) for text in kept] or [""]
    return [np.array(texts, object).reshape(*x.shape[:-1], -1)]


def _parts(attributes: Attributes, x: Array) -> Sequence[Any]:
    most = attributes.get("maxsplit")
    rows = [
        text.split(attributes.get("delimiter") or None, -1 if most is None else most)
        for text in x.reshape(-1)
    ]
    rows = [[] if row == [""] and not attributes.get("delimiter") else row for row in rows]
    width = max(map(len, rows), default=0)
    padded = np.array([[*row, *[""] * (width - len(row))] for row in rows], object)
    counts = np.array([len(row) for row in rows], np.int64)
    return [padded.reshape(*x.shape, width), counts.reshape(x.shape)]


def _matches(attributes: Attributes, x: Array) -> Sequence[Any]:
    pattern = attributes.get("pattern", "")
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise InputError(f"pattern {pattern!r}: {error}") from None
    return [_each(lambda text: found.fullmatch(text) is not None, x, bool)]


def _cast(attributes: Attributes, x: Array) -> Sequence[Any]:
    if attributes["to"] != TensorProto.STRING:
        to = np.dtype(helper.tensor_dtype_to_np_dtype(attributes["to"]))
        read = float if to.kind not in "iub" else lambda text: int(float(text))
        try:
            return [_each(read, x, np.float64 if to.kind not in "iub" else np.int64).astype(to)]
        except (ValueError, OverflowError) as error:
            raise InputError(f"Cast: {error}") from None
    if x.dtype.kind not in "fV":
        return [_each(lambda number: str(int(number)), x)]
    digits = 17 if x.dtype == np.float64 else 8

    def write(number: Any) -> str:
        text = f"{float(number):.{digits}g}"
        return _SPECIAL.get(text, text)

    return [_each(write, x)]


def _zipped(attributes: Attributes, x: Array) -> Sequence[Any]:
    texts = attributes.get("classlabels_strings")
    keys = texts or attributes.get("classlabels_int64s") or []
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(keys):
        raise InputError(f"ZipMap: scores of shape {x.shape} for {len(keys)} labels")
    # The order of ONNX Runtime's dicts is that of their keys.
    order = sorted(range(len(keys)), key=lambda at: str(keys[at]).encode() if texts else keys[at])
    names = [keys[at] for at in order]
    return [[dict(zip(names, row, strict=True)) for row in rows[:, order].tolist()]]


def _vectorized(attributes: Attributes, x: Mapping[Any, Any]) -> Sequence[Any]:
    names = attributes.get("string_vocabulary") or attributes.get("int64_vocabulary") or []
    values = [*x.values()]
    kind = np.asarray(values[:1]).dtype
    dtype = object if kind.kind in "US" else np.int64 if kind.kind == "i" else np.float32
    nothing = "" if dtype is object else 0
    return [np.array([[x.get(name, nothing) for name in names]], dtype)]


def _cast_map(attributes: Attributes, x: Mapping[int, Any]) -> Sequence[Any]:
    to = attributes.get("cast_to", "TO_FLOAT")
    if attributes.get("map_form", "DENSE") == "SPARSE":
        width = attributes.get("max_map", 1)
        items = [x.get(place, 0) for place in range(width)]
    else:
        items = [x[key] for key in sorted(x)]
    if to == "TO_STRING":
        return [np.array([[str(item) for item in items]], object)]
    return [np.array([[float(item) for item in items]], np.float32 if to == "TO_FLOAT" else int)]


def _grams(attributes: Attributes, x: Array) -> Sequence[Any]:
    """Count n-grams: TfIdfVectorizer."""
    pool = attributes.get("pool_strings") or attributes.get("pool_int64s") or []
    starts, places = [*attributes["ngram_counts"], len(pool)], attributes["ngram_indexes"]
    table: dict[tuple[Any, ...], int] = {}
    for length, (begin, end) in enumerate(pairwise(starts), 1):
        for at in range(begin, end, length):
            table.setdefault(tuple(pool[at : at + length]), len(table))
    shortest, longest = attributes["min_gram_length"], attributes["max_gram_length"]
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    counts = np.zeros((len(rows), max(places, default=-1) + 1), np.float32)
    for row, items in enumerate(rows.tolist()):
        found = Counter[tuple[Any, ...]]()
        for length in range(shortest, longest + 1):
            for skip in range(1, 2 + (attributes["max_skip_count"] if length > 1 else 0)):
                last = len(items) - (length - 1) * skip
                found.update(tuple(items[at::skip][:length]) for at in range(last))
        for gram, count in found.items():
            if gram in table:
                counts[row, places[table[gram]]] += count
    weights = np.asarray(attributes.get("weights") or [1.0] * len(places), np.float32)
    factors = np.ones(counts.shape[1], np.float32)
    factors[places] = weights
    mode = attributes["mode"]
    if mode != "TF":
        counts = np.minimum(counts, 1)
    result = counts if mode == "TF" else counts * factors
    return [result[0] if x.ndim < 2 else result]


def _reshaped(attributes: Attributes, x: Array, shape: Array) -> Sequence[Any]:
    keep = not attributes.get("allowzero", 0)
    sizes = [
        x.shape[axis] if size == 0 and keep and axis < x.ndim else size
        for axis, size in enumerate(np.ravel(shape).tolist())
    ]
    try:
        return [x.reshape(sizes)]
    except ValueError as error:
        raise InputError(f"Reshape: {error}") from None


def _flat(attributes: Attributes, x: Array) -> Sequence[Any]:
    axis = attributes.get("axis", 1) % (x.ndim + 1)
    return [x.reshape(int(np.prod(x.shape[:axis])), -1)]


#: Operators that only Python steps have, by label.
STEPS: dict[str, Step] = {
    "SequenceConstruct": lambda _, *items: [[*items]],
    "SequenceEmpty": lambda _: [[]],
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": lambda _, items: [np.asarray(len(items), np.int64)],
    "SequenceMap": _mapped,
    "SplitToSequence": _split,
    "ConcatFromSequence": _joined,
    "Optional": lambda _, x=None: [x],
    "OptionalHasElement": lambda _, x=None: [np.asarray(x is not None)],
    "OptionalGetElement": _value,
    "StringConcat": lambda _, a, b: [np.asarray(a + b, object)],
    "StringNormalizer": _normalized,
    "StringSplit": _parts,
    "RegexFullMatch": _matches,
    "TfIdfVectorizer": _grams,
    "ai.onnx.ml::ZipMap": _zipped,
    "ai.onnx.ml::DictVectorizer": _vectorized,
    "ai.onnx.ml::CastMap": _cast_map,
}

#: Operators that graphs have, and Python steps too, where texts or sequences come through them: by
#: the kind of the operator's trait ``Structural``; ``SHARED`` by label.
STRUCTURAL: dict[str, Step] = {
    "identity": lambda _, x: [x],
    "cast": _cast,
    "reshape": _reshaped,
    "concat": lambda attributes, *x: [np.concatenate(x, attributes["axis"])],
}
SHARED: dict[str, Step] = {"Flatten": _flat, "If": _chosen, "Loop": _looped}
