"""PyTorch's two exporters, which write a module with seeded weights as an ONNX file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtensor.benchmark.peer import Array

#: The names of PyTorch's exporters: ``script`` traces a module by TorchScript, ``dynamo`` by
#: ``torch.export``.
EXPORTERS = ("dynamo", "script")

#: The opset in which each exporter writes: its default.
_OPSETS = {"dynamo": 18, "script": 17}


@dataclass(frozen=True)
class Sample:
    """An example of a module's input, with which it is exported and timed.

    Args:
        array: the input's values.
        open: by index of an axis, the name of its size, if the exported file leaves the size open.
    """

    array: Array
    open: Mapping[int, str]


def image(channels: int, height: int, width: int, **open_axes: int) -> Sample:
    """Return a seeded picture with values around 0; its batch size is open.

    Args:
        channels, height, width: the picture's sizes.
        open_axes: further open sizes: name and index of the axis, such as ``width=3``.
    """
    noise = np.random.default_rng(0).standard_normal((1, channels, height, width))
    names = {axis: name for name, axis in open_axes.items()}
    return Sample(noise.astype(np.float32), {0: "batch", **names})


def tokens(count: int, vocabulary: int, batch: int = 1) -> Sample:
    """Return seeded numbers of words from 1 to ``vocabulary`` - 1, of the shape (batch, count).

    Both sizes are open: the batch size and the number of words, ``count``.
    """
    numbers = np.random.default_rng(0).integers(1, vocabulary, (batch, count))
    return Sample(numbers, {0: "batch", 1: "length"})


def ones(count: int, batch: int = 1) -> Sample:
    """Return an attention mask that hides no word: ones of the shape (batch, count).

    Both sizes are open.
    """
    return Sample(np.ones((batch, count), np.int64), {0: "batch", 1: "length"})


def _shown(sample: Sample) -> Array:
    """Return the values of an input with which an exporter traces the module.

    An open size of 1 is doubled, because the exporter would fix it.
    """
    sizes = [
        2 if axis in sample.open and size == 1 else 1
        for axis, size in enumerate(sample.array.shape)
    ]
    return np.tile(sample.array, sizes)


def export(
    make: Callable[[], Any],
    samples: Mapping[str, Sample],
    outputs: Sequence[str],
    path: Path,
    exporter: str,
) -> dict[str, Array]:
    """Write a module as ONNX, and return its inputs by name.

    Args:
        make: makes the module; PyTorch's generator of random numbers is seeded before the call.
        samples: the module's inputs by name, in the order in which its ``forward`` takes them.
        outputs: the names of the module's outputs.
        path: the file to write.
        exporter: one of ``EXPORTERS``.

    Raises:
        ImportError: PyTorch, or the package that makes the module, is absent.
    """
    import torch

    torch.manual_seed(0)
    module = make().eval()
    tensors = tuple(torch.from_numpy(_shown(sample)) for sample in samples.values())
    names = {"input_names": list(samples), "output_names": list(outputs)}
    if exporter == "dynamo":
        dims = {
            name: torch.export.Dim(name)
            for sample in samples.values()
            for name in sample.open.values()
        }
        shapes = [
            {axis: dims[name] for axis, name in sample.open.items()} for sample in samples.values()
        ]
        how: dict[str, Any] = {"dynamic_shapes": tuple(shapes), "external_data": False}
    else:
        how = {
            "dynamic_axes": {
                name: dict(sample.open) for name, sample in samples.items() if sample.open
            }
        }
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tensors,
            str(path),
            dynamo=exporter == "dynamo",
            opset_version=_OPSETS[exporter],
            verbose=False,
            **names,
            **how,
        )
    return {name: sample.array for name, sample in samples.items()}
