"""What ``vtensor run`` says about outputs: classes, boxes, or ranges and first values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtensor.storage.inputs import Array, Port

#: The fewest pixels on a side of an input that is taken for a picture, and its numbers of channels.
_LEAST_PIXELS, _CHANNELS = 8, (1, 3, 4)

#: The largest difference from 1 of the length of a vector that is taken for an embedding.
_UNIT = 1e-3

#: The numbers of an output that are shown.
_SHOWN = 8


def described(
    inputs: Sequence[Port], outputs: Mapping[str, Any], top: int, labels: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return what is known about each output as data, by the output's name.

    Each has ``shape`` and ``dtype``, the range of numbers, and the first values. ``top`` has the
    classes with the largest scores: only if the one output of a model of pictures has a score for
    each class, or if ``labels`` are given and there are no boxes. ``boxes`` has the boxes with the
    largest scores, if another output has scores for them.

    Args:
        inputs: the inputs of the model.
        outputs: the results by name.
        top: the number of classes or boxes to show.
        labels: the names of the classes, in order of their numbers; empty if none are given.
    """
    rows = {name: _range(array) for name, array in outputs.items()}
    boxes = _boxes(outputs, top, labels)
    for name, found in boxes.items():
        rows[name]["boxes"] = found
    if not boxes and (labels or (len(outputs) == 1 and _has_picture(inputs))):
        for name, array in outputs.items():
            if isinstance(array, np.ndarray) and not _is_embedding(array):
                rows[name]["top"] = top_classes(array, top, labels)
    return rows


def lines(name: str, row: Mapping[str, Any]) -> list[str]:
    """Return the description of an output as lines of text."""
    found = [f"{name}: {row['dtype']} {row['shape']}"]
    for item, best in enumerate(row["top"]):
        for line in best:
            label = line["label"] or f"class {line['class']}"
            found.append(f"  [{item}] {line['score']:>12.6g}  {label}")
    for line in row["boxes"]:
        corners = " ".join(f"{number:.6g}" for number in line["box"])
        found.append(f"  [{line['item']}] {line['score']:>12.6g}  box {corners}  {line['label']}")
    if row["top"] or row["boxes"]:
        return [line.rstrip() for line in found]
    if row["min"] is not None:
        found.append(f"  min {row['min']:.6g}  mean {row['mean']:.6g}  max {row['max']:.6g}")
    if row["not_finite"]:
        found.append(f"  infinite or NaN: {row['not_finite']} of {np.prod(row['shape'])}")
    if row["first"]:
        texts = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in row["first"])
        more = " ..." if np.prod(row["shape"]) > len(row["first"]) else ""
        found.append(f"  first {' '.join(texts)}{more}")
    return found


def _range(result: Any) -> dict[str, Any]:
    array = np.asarray(result, object if isinstance(result, list | dict) else None)
    row: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype), "top": []}
    row |= {"boxes": [], "min": None, "mean": None, "max": None, "not_finite": 0}
    first = array.ravel()[:_SHOWN]
    if array.dtype.kind not in "biufcV":
        return {**row, "first": [str(value) for value in first]}
    if array.dtype.kind == "c":
        return {**row, "first": [str(value) for value in first.tolist()]}
    if array.dtype.kind in "biu":
        row["first"], wide = [int(value) for value in first], array.astype(np.float64)
    else:
        wide = array.astype(np.float64)
        row["first"] = [v if np.isfinite(v) else str(v) for v in wide.ravel()[:_SHOWN].tolist()]
    numbers = wide[np.isfinite(wide)]
    row["not_finite"] = int(wide.size - numbers.size)
    if numbers.size:
        row |= {name: float(getattr(numbers, name)()) for name in ("min", "mean", "max")}
    return row


def _has_picture(inputs: Sequence[Port]) -> bool:
    """Return whether an input may be a picture: two sizes of pixels, and few channels."""
    for port in inputs:
        sizes = [size or 0 for size in port.shape]
        orders = [(sizes[1], sizes[2:]), (sizes[3], sizes[1:3])] if len(sizes) == 4 else []
        for channels, pixels in orders:
            if channels in _CHANNELS and min(pixels) >= _LEAST_PIXELS:
                return True
    return False


def _is_embedding(array: Array) -> bool:
    """Return whether each item of a batch is a vector of length 1, some of it negative."""
    if array.ndim < 2 or array.dtype.kind != "f" or not array.size:
        return False
    rows = array.reshape(array.shape[0], -1).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    return bool((np.abs(lengths - 1) < _UNIT).all() and (rows < 0).any())


def _boxes(
    outputs: Mapping[str, Any], top: int, labels: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the boxes with the largest scores, by the name of the output that has the boxes.

    An output of four numbers a box is one of boxes if exactly one other output has a float for each
    box; an output that has an integer for each box has its classes.
    """
    arrays = {name: array for name, array in outputs.items() if isinstance(array, np.ndarray)}
    found = {}
    for name, boxes in arrays.items():
        if boxes.dtype.kind != "f" or boxes.ndim not in (2, 3) or boxes.shape[-1] != 4:
            continue
        alike = [array for array in arrays.values() if array.shape == boxes.shape[:-1]]
        scores = [array for array in alike if array.dtype.kind == "f"]
        classes = [array for array in alike if array.dtype.kind in "iu"]
        if len(scores) != 1 or len(classes) > 1:
            continue
        rows = []
        for place in np.argsort(-scores[0].ravel().astype(np.float64), kind="stable")[:top]:
            number = int(classes[0].ravel()[place]) if classes else None
            rows.append(
                {
                    "item": int(place // boxes.shape[-2]) if boxes.ndim == 3 else 0,
                    "score": float(scores[0].ravel()[place]),
                    "box": boxes.reshape(-1, 4)[place].astype(float).tolist(),
                    "class": number,
                    "label": _label(number, labels),
                }
            )
        found[name] = rows
    return found


def _label(number: int | None, labels: Sequence[str]) -> str:
    if number is None:
        return ""
    return labels[number] if 0 <= number < len(labels) else f"class {number}"


def top_classes(array: Array, top: int, labels: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the classes with the largest scores, for each item of a batch.

    Empty if the output is no classification: if an item has more than one dim of a size above 1, or
    its elements are truth values or complex numbers.

    Args:
        array: the output, with the batch as its first dim.
        top: the number of classes to return for each item.
        labels: the names of the classes, in order of their numbers; may be too short.

    Returns:
        For each item, a list of ``{"class": number, "label": name, "score": score}``, the largest
        score first; the label of a class without a name is empty.
    """
    if array.ndim < 2 or array.size == 0 or array[0].size != max(array.shape[1:]):
        return []
    if array.dtype.kind in "bcOSUT":  # truth values, complex numbers and texts are no scores
        return []
    rows = []
    for scores in array.reshape(array.shape[0], -1):
        best = np.argsort(-scores.astype(np.float64), kind="stable")[:top]
        rows.append(
            [
                {
                    "class": int(index),
                    "label": labels[index] if index < len(labels) else "",
                    "score": float(scores[index]),
                }
                for index in best
            ]
        )
    return rows
