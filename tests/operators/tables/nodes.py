"""Models of one ONNX node: how tests write them, and what other engines say that they compute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ops.binary import FLOORED_FLOATS
from tests.operators.harness import check_close
from vtensor.errors import ModelError
from vtensor.language.dtype import ITEMSIZE, numpy_dtype
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

#: The first opset whose versions of operators are told apart.
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


IMAGE, SERIES, VOLUME = (2, 6, 9, 8), (2, 6, 9), (2, 6, 5, 4, 7)


def floats(*shape: int) -> Array:
    """Return normally distributed f32 of this shape."""
    return np.random.default_rng(6).normal(size=shape).astype(np.float32)


def positive(size: int) -> Array:
    """Return a row of f32 from 0.5 to 1.5."""
    return np.random.default_rng(8).uniform(0.5, 1.5, size).astype(np.float32)


def steps(*shape: int) -> Array:
    """Return u8 of this shape, as quantisation makes them."""
    return np.random.default_rng(9).integers(0, 256, shape).astype(np.uint8)


def integers(*values: int) -> Array:
    """Return a row of s64, such as a shape or axes."""
    return np.array(values, np.int64)


def numbers(*values: float) -> Array:
    """Return a row of f32, such as scales."""
    return np.array(values, np.float32)


@dataclass(frozen=True, eq=False)
class Node:
    """A node in one opset, whose model delivers all its outputs.

    Attributes:
        proto: the node; its inputs are named x0, x1, ..., its outputs y, y1, ...
        feeds: the inputs of a run, by name.
        known: the initializers, by name.
    """

    proto: NodeProto
    opset: int
    feeds: Mapping[str, Array]
    known: Mapping[str, Array]

    @property
    def op_type(self) -> str:
        """The operator's name, behind its domain where that is another than ONNX's."""
        return "::".join(filter(None, (self.proto.domain, self.proto.op_type)))

    @property
    def schema(self) -> defs.OpSchema:
        """ONNX's definition of the operator in this opset."""
        return defs.get_schema(self.proto.op_type, self.opset, self.proto.domain)

    @property
    def arrays(self) -> dict[str, Array]:
        """All inputs by name."""
        return {**self.feeds, **self.known}

    def __str__(self) -> str:
        shapes = [f"{a.dtype}{list(a.shape)}" for a in self.arrays.values()]
        attributes = {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}
        return f"{self.op_type}-{self.opset} {' '.join(shapes)} {attributes}"

    def model(self) -> ModelProto:
        """Return the model of this node, with the types that ONNX infers."""
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in self.feeds.items()
        ]
        known = [numpy_helper.from_array(a, name) for name, a in self.known.items()]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in self.proto.output]
        graph = helper.make_graph([self.proto], "one", inputs, outputs, known)
        opsets = [helper.make_opsetid(self.proto.domain, self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def run(self, libraries: Sequence[str] | None = None, threads: int = 1) -> list[Array]:
        """Return what VTensor makes of the feeds."""
        with Session(self.model(), threads=threads, libraries=libraries) as session:
            return session.run(None, dict(self.feeds))

    def at(self, opset: int) -> Node:
        """Return the same node in another opset."""
        return replace(self, opset=opset)

    def folded(self) -> Node:
        """Return the same node with all its inputs known."""
        return replace(self, feeds={}, known=self.arrays)

    def fits(self) -> bool:
        """Return whether ONNX allows the node in this opset."""
        context = onnx.checker.C.CheckerContext()
        context.ir_version, context.opset_imports = 8, {"": self.opset}
        if self.opset < 11 and self._counts_from_the_end():
            return False
        try:
            onnx.checker.check_node(self.proto, context)
            # the functions that define some do not take each type that ONNX allows
            strict = not self.schema.has_function  # type: ignore[attr-defined]
            onnx.shape_inference.infer_shapes(self.model(), check_type=True, strict_mode=strict)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            return False
        return True

    def _counts_from_the_end(self) -> bool:
        """Return whether an axis is negative, which ONNX allows since opset 11."""
        axes = [a for a in self.proto.attribute if a.name in ("axes", "axis")]
        return any(min((a.i, *a.ints)) < 0 for a in axes)

    def met(self) -> set[str]:
        """Return what the node shows of its definition: attributes, inputs there or not, types."""
        there = dict(enumerate(self.proto.input))
        optional = {
            f"{formal.name} {bool(there.get(index))}"
            for index, formal in enumerate(self.schema.inputs)
            if formal.option == _OPTIONAL
        }
        types = {f"{kind} {self.arrays[n].dtype.name}" for n, kind in self._roles().items()}
        return optional | types | {attribute.name for attribute in self.proto.attribute}

    def retyped(self) -> Iterator[Node]:
        """Yield the node on every other element type of ours that the definition allows.

        Where ONNX refuses types of inputs that differ, all change.
        """
        roles = self._roles()
        for parameter in self.schema.type_constraints:
            mine = {name for name, kind in roles.items() if kind == parameter.type_param_str}
            for kind in parameter.allowed_type_strs if mine else ():
                if kind in TYPES:
                    some = self._cast(mine, TYPES[kind])
                    every = self._cast(self._may_be(kind), TYPES[kind])
                    yield from [each for each in (some, every) if each.fits()][:1]

    def expected(self) -> Sequence[Array] | None:
        """Return what ONNX Runtime says; where it has no kernel for the types, what it says in f32;
        where it has none in this opset, in one before that allows the node; else what ONNX's
        reference says. None where this fails too, as is known of some.
        """
        first = next(iter(self.feeds.values())).dtype  # of functions, ONNX infers no types
        kinds = [value.type.tensor_type.elem_type for value in self.model().graph.output]
        dtypes = [helper.tensor_dtype_to_np_dtype(kind) if kind else first for kind in kinds]
        answers = self._answers()
        return answers and [_as(np.asarray(a), d) for a, d in zip(answers, dtypes, strict=True)]

    def _answers(self) -> Sequence[Array] | None:
        wide = self._cast(self._may_be("tensor(float)"), np.dtype(np.float32))
        changed = [a for name, a in self.arrays.items() if a.dtype != wide.arrays[name].dtype]
        whole = self.op_type in _INTEGERS_DIFFER and any(a.dtype.kind in "iu" for a in changed)
        no_array = any(a.dtype.name == "bfloat16" for a in changed)  # it takes no such array
        own = [] if whole or no_array else [self]
        for node in (*own, *wide._older()) if self.op_type not in _RUNTIME_DIFFERS else ():
            try:
                session = onnxruntime.InferenceSession(node.model().SerializeToString(), _QUIET)
                answers: Sequence[Array] = session.run(None, dict(node.feeds))
            except Exception:  # no kernel, or one that refuses the types or the values in a run
                continue
            return answers
        try:
            with np.errstate(all="ignore"):
                return ReferenceEvaluator(self.model()).run(None, dict(self.feeds))  # type: ignore[return-value]
        except ValueError:
            if self.op_type not in _REFERENCE_FAILS:
                raise
            return None

    def _older(self) -> Iterator[Node]:
        yield self
        for schema in reversed(versions(self.op_type)):
            older = self.at(max(FIRST, schema.since_version))
            if older.opset < self.schema.since_version and older.fits():
                yield older

    def _roles(self) -> dict[str, str]:
        formal = self.schema.inputs
        last = len(formal) - 1
        return {n: formal[min(i, last)].type_str for i, n in enumerate(self.proto.input) if n}

    def _may_be(self, kind: str) -> set[str]:
        constraints = self.schema.type_constraints
        allowed = {c.type_param_str for c in constraints if kind in c.allowed_type_strs}
        return {name for name, role in self._roles().items() if role in allowed}

    def _cast(self, names: set[str], dtype: np.dtype[Any]) -> Node:
        feeds, known = (
            {name: _cast(a, dtype) if name in names else a for name, a in rows.items()}
            for rows in (self.feeds, self.known)
        )
        return replace(self, feeds=feeds, known=known)


def make(
    op_type: str,
    opset: int,
    inputs: Sequence[Array | None],
    known: Collection[int],
    **attributes: Any,
) -> Node:
    """Return a node of arrays, of which some are known before the run; None is an absent input.

    ``outputs`` among the attributes is the number of outputs.
    """
    domain, _, name = op_type.rpartition("::")
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    outputs = ["y", *(f"y{i}" for i in range(1, attributes.pop("outputs", 1)))]
    proto = helper.make_node(name, names, outputs, domain=domain, **attributes)
    rows = [(i, array) for i, array in enumerate(inputs) if array is not None]
    feeds = {f"x{i}": array for i, array in rows if i not in known}
    return Node(proto, opset, feeds, {f"x{i}": array for i, array in rows if i in known})


def node(
    op_type: str, opset: int, *inputs: tuple[int, ...] | Array | None, **attributes: Any
) -> Node:
    """Return a node: shapes are inputs of the run, whose values are drawn; arrays are known.

    ``fed_as`` among the attributes is the element type of what is drawn.
    """
    random, dtype = np.random.default_rng(5), attributes.pop("fed_as", "float32")
    scale = 1 if dtype == "float32" else 30
    arrays = [
        np.asarray(random.normal(size=entry) * scale, dtype) if isinstance(entry, tuple) else entry
        for entry in inputs
    ]
    known = [i for i, entry in enumerate(inputs) if not isinstance(entry, tuple)]
    return make(op_type, opset, arrays, known, **attributes)


def fed(op_type: str, opset: int, *inputs: Array | None, **attributes: Any) -> Node:
    """Return a node of arrays, of which the last ``constants`` are known before the run."""
    count = len(inputs)
    known = range(count - attributes.pop("constants", 0), count)
    return make(op_type, opset, inputs, known, **attributes)


def twice(node: Node) -> Node:
    """Return a node that takes its first input once more."""
    node.proto.input.append(node.proto.input[0])
    return node


@cache
def versions(op_type: str) -> list[defs.OpSchema]:
    """Return an operator's definitions from ``FIRST`` on; the oldest may be older."""
    return [defs.get_schema(op_type, version) for version in opsets(op_type)]


def opsets(op_type: str) -> list[int]:
    """Return the opsets that changed an operator, from ``FIRST`` on."""
    return sorted(_since()[op_type])


@cache
def _since() -> Mapping[str, set[int]]:
    """Return from which opset on there is each definition, by the operator's name."""
    since = defaultdict[str, set[int]](set)
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            since[schema.name].add(max(FIRST, schema.since_version))
    return since


def agrees(node: Node, *choices: Sequence[str] | None) -> bool:
    """Check that VTensor agrees with the others on each choice of libraries; by default on all.

    Return False where the others say nothing.
    """
    if has_no_rule(node):
        with pytest.raises(ModelError, match="fmod"):
            Session(node.model())
        return False
    expected = node.expected()
    if expected is None:
        return False
    for libraries in choices or (None,):
        for ours, theirs in zip(node.run(libraries), expected, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), node
            left_open = beyond(node, ours)
            mine, other = (np.where(left_open, 0, a.astype(np.float64)) for a in (ours, theirs))
            check_close(mine, other, bound(node))
    return True


def has_no_rule(node: Node) -> bool:
    """Return whether the node is a remainder of floats that its opset does not define."""
    floored = node.op_type == "Mod" and not any(a.i for a in node.proto.attribute)
    [x, *_] = node.arrays.values()
    return floored and node.opset < FLOORED_FLOATS and x.dtype.kind not in "iu"


def beyond(node: Node, result: Array) -> Array:
    """Return where a float is cast to an integer that cannot hold it, which ONNX leaves open."""
    [x, *_] = node.arrays.values()
    if not node.op_type.startswith("Cast") or result.dtype.kind not in "iu":
        return np.zeros(result.shape, bool)
    limits, whole = np.iinfo(result.dtype), np.trunc(x.astype(np.float64))
    inside: Array = (whole >= limits.min) & (whole <= limits.max)
    return ~inside


def bound(node: Node) -> float:
    """Return by how much a result may be off: as much as the node's narrowest element type."""
    names = {array.dtype.name for array in node.arrays.values()}
    return 2e-2 if "bfloat16" in names else 4e-3 if "float16" in names else 1e-5


def _as(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an answer in the type of the output: ONNX Runtime delivers f8e4m3fn as its bits."""
    bits = array.dtype == np.uint8 and dtype.name == "float8_e4m3fn"
    return array.view(dtype) if bits else array.astype(dtype)


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return integers away from 0, by which one can divide, and none below 0 in a type without."""
    if dtype.kind in "iu" and array.dtype.kind == "f":
        array = np.asarray(np.copysign(np.ceil(np.abs(array)), array))
    return (np.asarray(np.abs(array)) if dtype.kind == "u" else array).astype(dtype)
