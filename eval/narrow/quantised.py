"""Networks in narrow types, converted by the usual tools: ONNX Runtime's quantiser and converter.

A *conversion* has a name, such as ``qdq-u8s8-channel``. Converted files stay in ``out/narrow/``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx.version_converter import convert_version

from eval.compare import photograph
from eval.models_today.__main__ import made
from eval.networks import NAMES, build
from eval.today import EXPORTER
from vtensor import save_onnx
from vtensor.benchmark.peer import Array
from vtensor.benchmark.report import Case

FOLDER = Path("out/narrow")
#: The first opset whose DequantizeLinear has scales by channel.
BY_CHANNEL = 13
#: The number of samples from which the quantiser takes the ranges of values.
SAMPLES = 4

Feeds = Mapping[str, Array]
#: A function (model, file to write, inputs) that converts a model whose batch norms are folded.
Convert = Callable[[onnx.ModelProto, Path, Feeds], None]


class Samples:
    """The inputs with which the quantiser runs a model: first the given ones, then noise.

    Args:
        feeds: inputs by name; of an integer input every sample has the given values.
    """

    def __init__(self, feeds: Feeds) -> None:
        self._waiting = iter([dict(feeds), *(_noise(feeds, seed) for seed in range(1, SAMPLES))])

    def get_next(self) -> dict[str, Array] | None:
        """Return the next sample; None after the last one."""
        return next(self._waiting, None)


def _noise(feeds: Feeds, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.permuted(array.ravel()).reshape(array.shape) if array.dtype.kind == "f" else array
        for name, array in feeds.items()
    }


def static(
    layout: str,
    types: str,
    scales: str,
    model: onnx.ModelProto,
    file: Path,
    feeds: Feeds,
    **extra: object,
) -> None:
    """Write a model with quantised weights and activations, whose scales come from ``Samples``.

    Args:
        layout: ``qdq``: operators in f32 between pairs of QuantizeLinear and DequantizeLinear;
            ``qop``: quantised operators, such as QLinearConv.
        types: of activations, then of weights: ``u8s8``, ``s8s8``, ``u8u8`` or ``u16s8``.
        scales: ``tensor`` or ``channel``: what of a weight has a scale.
        model, file, feeds: as in ``Convert``.
        extra: the quantiser's ``extra_options``.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    kinds = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8, "u16": QuantType.QUInt16}
    activations, weights = types[:-2], types[-2:]
    quantize_static(
        model,
        file,
        Samples(feeds),
        quant_format=QuantFormat.QDQ if layout == "qdq" else QuantFormat.QOperator,
        per_channel=scales == "channel",
        activation_type=kinds[activations],
        weight_type=kinds[weights],
        extra_options=dict(extra),
    )


def dynamic(weights: str, scales: str, model: onnx.ModelProto, file: Path, feeds: Feeds) -> None:
    """Write a model with quantised weights; activations are quantised in each run.

    Args:
        weights: ``s8`` or ``u8``.
        scales: as in ``static``.
        model, file, feeds: as in ``Convert``; ``feeds`` is ignored.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    del feeds
    kind = QuantType.QInt8 if weights == "s8" else QuantType.QUInt8
    quantize_dynamic(model, file, per_channel=scales == "channel", weight_type=kind)


def half(model: onnx.ModelProto, file: Path, feeds: Feeds) -> None:
    """Write a model in f16; its inputs and outputs stay in f32."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    del feeds
    onnx.save(convert_float_to_float16(model, keep_io_types=True), file)


def blocks(
    block: int, symmetric: bool, level: int | None, model: onnx.ModelProto, file: Path, feeds: Feeds
) -> None:
    """Write a model whose products have weights of 4 bits.

    Args:
        block: the number of weights that share a scale.
        symmetric: False gives each block a zero point.
        level: MatMulNBits's accuracy level; None is ONNX Runtime's default.
        model, file, feeds: as in ``Convert``; ``feeds`` is ignored.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    del feeds
    quantiser = MatMulNBitsQuantizer(
        model, block_size=block, is_symmetric=symmetric, accuracy_level=level
    )
    quantiser.process()
    onnx.save(quantiser.model.model, file)


STATIC = {
    "-".join(parts): partial(static, *parts)
    for parts in product(("qdq", "qop"), ("u8s8", "s8s8"), ("tensor", "channel"))
}
DYNAMIC = {
    f"dynamic-s8-{scales}": partial(dynamic, "s8", scales) for scales in ("tensor", "channel")
}
BITS4 = {"bits4": partial(blocks, 32, True, None), "bits4-level4": partial(blocks, 128, False, 4)}
CONVERSIONS: Mapping[str, Convert] = {**STATIC, **DYNAMIC, "f16": half, **BITS4}


def source(name: str, size: int | None = None) -> Case | None:
    """Return a network in f32: one of the twelve, or a model of today.

    None, after a note is printed, if it cannot be made on this machine.

    Args:
        name: the network's name.
        size: of the twelve, height and width of an image in pixels; None is the network's own.
    """
    if name not in NAMES:
        return made(name, EXPORTER)
    graph, file = build(name, size=size), FOLDER / f"{name}{size or ''}.onnx"
    feeds = {key: photograph(tuple(graph.values[key].dims.values())) for key in graph.inputs}
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save_onnx(graph, file)
    return Case(file.stem, file, feeds)


def converted(case: Case, conversion: str) -> Path:
    """Return the file of a converted network; write it if it is missing."""
    file = FOLDER / f"{case.name}.{conversion}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        with quiet():
            CONVERSIONS[conversion](prepared(onnx.load(case.model)), part, case.feeds)
        part.rename(file)
    return file


def prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model as the quantiser wants it: shapes inferred, batch norms folded, and of an
    opset whose DequantizeLinear has scales by channel.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder, quiet():
        whole, file = Path(folder) / "whole.onnx", Path(folder) / "prepared.onnx"
        onnx.save(model, whole)  # as one file, since the tool looks for others beside its own
        quant_pre_process(whole, file, skip_symbolic_shape=True)
        made = onnx.load(file)
    [opset] = [row.version for row in made.opset_import if row.domain in ("", "ai.onnx")]
    return made if opset >= BY_CHANNEL else convert_version(made, BY_CHANNEL)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the tools from logging their advice while the block runs."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
