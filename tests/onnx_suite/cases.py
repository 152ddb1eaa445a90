"""The cases of ONNX's backend suite: a model, inputs, and the outputs that it must give."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from libdesc.registry import registry
from vtensor.frontends.control import DECIDING
from vtensor.frontends.edges.steps import STEPS
from vtensor.frontends.folding import OWN
from vtensor.frontends.functions import has_body
from vtensor.language.operators import OPERATORS

#: Kinds of cases, by the suite's own names; its "real" networks are tests/networks'.
CATEGORIES = ("node", "simple", "pytorch-converted", "pytorch-operator")

Value = Any  # an array, or for sequences and optionals a list or None


@dataclass(frozen=True, eq=False)
class Case:
    """One case; from a file it is read when it is asked for.

    Attributes:
        source: where its files are, or the suite's own object.
        rtol, atol: the suite's tolerances.
    """

    name: str
    category: str
    source: Any
    rtol: float
    atol: float

    @cached_property
    def model(self) -> ModelProto:
        """The model."""
        if isinstance(self.source, Path):
            return onnx.load(self.source / "model.onnx")
        model: ModelProto = self.source.model
        return model

    @property
    def data(self) -> Iterator[tuple[dict[str, Value], list[Value]]]:
        """Inputs by name and the outputs wanted, for each set of data."""
        if not isinstance(self.source, Path):
            for inputs, outputs in self.source.data_sets:
                yield self._named([_array(x) for x in inputs]), [_array(y) for y in outputs]
            return
        for folder in sorted(self.source.glob("test_data_set_*")):
            inputs, outputs = (self._files(folder, kind) for kind in ("input", "output"))
            yield self._named(inputs), outputs

    @property
    def operators(self) -> list[tuple[str, str]]:
        """Domain and type of the model's operators, each once."""
        return sorted({(node.domain, node.op_type) for node in self.model.graph.node})

    @property
    def supported(self) -> bool:
        """True when VTensor has every operator of the model in the model's opset.

        Or it computes the operator while loading, or has what it is expanded to: a function's
        body, turns of a loop.
        """
        opsets = {entry.domain: entry.version for entry in self.model.opset_import}
        return all(
            _has("" if domain == "ai.onnx" else domain, op, opsets.get(domain, opsets.get("", 0)))
            for domain, op in self.operators
        )

    def _named(self, inputs: list[Value]) -> dict[str, Value]:
        return dict(zip((value.name for value in self.model.graph.input), inputs, strict=False))

    def _files(self, folder: Path, kind: str) -> list[Value]:
        declared = self.model.graph.input if kind == "input" else self.model.graph.output
        count = len(list(folder.glob(f"{kind}_*.pb")))
        return [
            _read(folder / f"{kind}_{index}.pb", declared[index].type) for index in range(count)
        ]


def _has(domain: str, op: str, opset: int) -> bool:
    own = not domain and op in (*DECIDING, *OWN)
    label = f"{domain}::{op}" if domain else op
    own = own or label in STEPS
    return own or bool(OPERATORS.spellings(label, opset)) or has_body(domain, op, opset)


def _array(given: Value) -> Value:
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else given


def _read(file: Path, kind: onnx.TypeProto) -> Value:
    content = file.read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(TensorProto.FromString(content))


@cache
def load() -> Mapping[str, Case]:
    """Every case by name, node cases first."""
    registry()  # the operators' spellings
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the suite computes what it expects, overflows included
        from onnx.backend.test.loader import load_model_tests

        cases: dict[str, Case] = {}
        for category in CATEGORIES:
            for made in sorted(load_model_tests(kind=category), key=lambda made: str(made.name)):
                source = made if made.model_dir is None else Path(made.model_dir)
                cases[made.name] = Case(made.name, category, source, made.rtol, made.atol)
        return cases
