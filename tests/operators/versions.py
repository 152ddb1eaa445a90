"""A node in other opsets and on other element types than it was written for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from vtensor.language.dtype import ITEMSIZE, numpy_dtype

Array = np.ndarray[Any, Any]

#: The opsets from which on versions are told apart.
FIRST = 7

#: Element types as schemas write them; the peers compute with none that is complex, and what only
#: has powers of two holds neither 0 nor what is below.
TYPES = {
    f"tensor({TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()})": dtype
    for dtype in map(numpy_dtype, ITEMSIZE.keys() - {"c64", "c128", "f8e8m0"})
}

#: ONNX Runtime's kernels for integers take other steps than its kernel for f32 (an exponential that
#: is an integer, say), and ONNX says nothing of integers there.
_INTEGERS_DIFFER = ("ReduceLogSumExp",)

#: ONNX's reference fails: it broadcasts no Mean, and quantises products to integers alone.
_REFERENCE_FAILS = ("Mean", "QLinearMatMul")

#: ONNX Runtime counts the places of a MaxUnpool in ``output_shape``, ONNX in what the window gives.
_RUNTIME_DIFFERS = ("MaxUnpool",)

_QUIET = onnxruntime.SessionOptions()
_QUIET.log_severity_level = 4

_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


@cache
def versions(op_type: str) -> list[defs.OpSchema]:
    """An operator's definitions from ``FIRST`` on; the oldest may be older."""
    return [defs.get_schema(op_type, version) for version in sorted(_since()[op_type])]


@cache
def _since() -> Mapping[str, set[int]]:
    """From which opset on there is each definition, by the operator's name."""
    found = defaultdict[str, set[int]](set)
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            found[schema.name].add(max(FIRST, schema.since_version))
    return found


@dataclass(frozen=True, eq=False)
class Version:
    """One node in one opset: what it is fed, and what is known before the run."""

    node: NodeProto
    opset: int
    feeds: Mapping[str, Array]
    known: Mapping[str, Array]

    @classmethod
    def of(cls, model: ModelProto, feeds: Mapping[str, Array], opset: int) -> Version:
        """The node of a model, in an opset."""
        known = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        return cls(model.graph.node[0], opset, feeds, known)

    @property
    def schema(self) -> defs.OpSchema:
        """ONNX's definition of the node's operator in this opset."""
        return defs.get_schema(self.node.op_type, self.opset)

    def __str__(self) -> str:
        shapes = [f"{a.dtype}{list(a.shape)}" for a in self._arrays().values()]
        attributes = {a.name: helper.get_attribute_value(a) for a in self.node.attribute}
        return f"{self.node.op_type}-{self.opset} {' '.join(shapes)} {attributes}"

    def model(self) -> ModelProto:
        """The model of this node, which delivers all its outputs."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in self.feeds.items()
        ]
        known = [numpy_helper.from_array(a, name) for name, a in self.known.items()]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in self.node.output]
        graph = helper.make_graph([self.node], "one", inputs, outputs, known)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def fits(self) -> bool:
        """Whether ONNX allows the node in this opset."""
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = 8, {"": self.opset}
        if self.opset < 11 and self._counts_from_the_end():
            return False
        try:
            onnx.checker.check_node(self.node, context)
            # the functions that define some do not take each type that ONNX allows
            strict = not self.schema.has_function  # type: ignore[attr-defined]
            onnx.shape_inference.infer_shapes(self.model(), check_type=True, strict_mode=strict)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            return False
        return True

    def _counts_from_the_end(self) -> bool:
        """Which axes may do since opset 11."""
        axes = [a for a in self.node.attribute if a.name in ("axes", "axis")]
        return any(min((a.i, *a.ints)) < 0 for a in axes)

    def given(self) -> int:
        """How many inputs there are."""
        return sum(map(bool, self.node.input))

    def met(self) -> set[str]:
        """What of its definition the node shows: attributes, inputs there and not, their types."""
        given = dict(enumerate(self.node.input))
        optional = {
            f"{formal.name} {bool(given.get(index))}"
            for index, formal in enumerate(self.schema.inputs)
            if formal.option == _OPTIONAL
        }
        arrays = self._arrays()
        types = {f"{kind} {arrays[name].dtype.name}" for name, kind in self._roles().items()}
        return optional | types | {attribute.name for attribute in self.node.attribute}

    def retyped(self) -> Iterator[Version]:
        """The same on every other element type of ours that the definition allows.

        Where ONNX refuses types of inputs that differ, all change.
        """
        roles = self._roles()
        for parameter in self.schema.type_constraints:
            mine = {name for name, kind in roles.items() if kind == parameter.type_param_str}
            for kind in parameter.allowed_type_strs if mine else ():
                if kind in TYPES:
                    one = self._cast(mine, TYPES[kind])
                    every = self._cast(self._may_be(kind), TYPES[kind])
                    yield from [each for each in (one, every) if each.fits()][:1]

    def expected(self) -> Sequence[Array] | None:
        """What ONNX Runtime says; where it has no kernel for the types, what it says in f32; where
        it has none in this opset, in one before that allows the node; else ONNX's reference. None
        where this fails too, as is known of some.
        """
        first = next(iter(self.feeds.values())).dtype  # of functions, ONNX infers no types
        kinds = [value.type.tensor_type.elem_type for value in self.model().graph.output]
        dtypes = [helper.tensor_dtype_to_np_dtype(kind) if kind else first for kind in kinds]
        found = self._found()
        return found and [_as(np.asarray(a), d) for a, d in zip(found, dtypes, strict=True)]

    def _found(self) -> Sequence[Array] | None:
        wide = self._cast(self._may_be("tensor(float)"), np.dtype(np.float32))
        changed, name = self._changed_by(wide), self.node.op_type
        whole = name in _INTEGERS_DIFFER and any(a.dtype.kind in "iu" for a in changed)
        no_array = any(a.dtype.name == "bfloat16" for a in changed)  # it takes no such array
        own = [] if whole or no_array else [self]
        for one in (*own, *wide._older()) if name not in _RUNTIME_DIFFERS else ():
            try:
                session = onnxruntime.InferenceSession(one.model().SerializeToString(), _QUIET)
                found: Sequence[Array] = session.run(None, dict(one.feeds))
            except Exception:  # no kernel, or one that refuses the types or the values in a run
                continue
            return found
        try:
            with np.errstate(all="ignore"):
                return ReferenceEvaluator(self.model()).run(None, dict(self.feeds))  # type: ignore[return-value]
        except ValueError:
            if name not in _REFERENCE_FAILS:
                raise
            return None

    def _older(self) -> Iterator[Version]:
        yield self
        for schema in reversed(versions(self.node.op_type)):
            older = replace(self, opset=max(FIRST, schema.since_version))
            if older.opset < self.schema.since_version and older.fits():
                yield older

    def _arrays(self) -> dict[str, Array]:
        return {**self.feeds, **self.known}

    def _changed_by(self, other: Version) -> list[Array]:
        after = other._arrays()
        return [a for name, a in self._arrays().items() if a.dtype != after[name].dtype]

    def _roles(self) -> dict[str, str]:
        formal = self.schema.inputs
        last = len(formal) - 1
        return {n: formal[min(i, last)].type_str for i, n in enumerate(self.node.input) if n}

    def _may_be(self, kind: str) -> set[str]:
        allowed = {
            one.type_param_str
            for one in self.schema.type_constraints
            if kind in one.allowed_type_strs
        }
        return {name for name, role in self._roles().items() if role in allowed}

    def _cast(self, names: set[str], dtype: np.dtype[Any]) -> Version:
        feeds, known = (
            {name: _cast(a, dtype) if name in names else a for name, a in rows.items()}
            for rows in (self.feeds, self.known)
        )
        return replace(self, feeds=feeds, known=known)


def _as(array: Array, dtype: np.dtype[Any]) -> Array:
    """ONNX Runtime delivers f8e4m3fn as its bits."""
    bits = array.dtype == np.uint8 and dtype.name == "float8_e4m3fn"
    return array.view(dtype) if bits else array.astype(dtype)


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Integers away from 0, by which one can divide; none below 0 where the type has none."""
    if dtype.kind in "iu" and array.dtype.kind == "f":
        array = np.asarray(np.copysign(np.ceil(np.abs(array)), array))
    return (np.asarray(np.abs(array)) if dtype.kind == "u" else array).astype(dtype)
