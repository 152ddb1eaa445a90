"""PyTorch's two exporters, which write a module with seeded weights as an ONNX file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtensor.benchmark.peer import Array

#: ``script`` traces through TorchScript, ``dynamo`` through ``torch.export``.
EXPORTERS = ("dynamo", "script")

#: The opset that each exporter is asked for: its default.
_OPSETS = {"dynamo": 18, "script": 17}


@dataclass(frozen=True)
class Sample:
    """An input for an exporter and a benchmark.

    Args:
        array: the values.
        open: names of the open sizes, by the number of the axis.
    """

    array: Array
    open: Mapping[int, str]


def image(channels: int, height: int, width: int, **open_axes: int) -> Sample:
    """Return a seeded picture with values around 0; its batch size is open.

    Args:
        channels, height, width: its sizes.
        open_axes: the numbers of further open axes, by name: ``width=3``.
    """
    noise = np.random.default_rng(0).standard_normal((1, channels, height, width))
    names = {axis: name for name, axis in open_axes.items()}
    return Sample(noise.astype(np.float32), {0: "batch", **names})


def tokens(count: int, vocabulary: int, batch: int = 1) -> Sample:
    """Return seeded word numbers from 1 to ``vocabulary`` - 1; batch and length are open."""
    numbers = np.random.default_rng(0).integers(1, vocabulary, (batch, count))
    return Sample(numbers, {0: "batch", 1: "length"})


def ones(count: int, batch: int = 1) -> Sample:
    """Return an attention mask that hides none of ``count`` words; batch and length are open."""
    return Sample(np.ones((batch, count), np.int64), {0: "batch", 1: "length"})


def _shown(sample: Sample) -> Array:
    """Return the array with which an exporter traces the module: an open size of 1 is doubled,
    because the exporter would fix it.
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
        make: returns the module; called with PyTorch's generator seeded.
        samples: the module's inputs by name, in the order of its ``forward``.
        outputs: the names of its outputs.
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
