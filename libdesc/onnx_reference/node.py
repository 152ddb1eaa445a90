"""ONNX nodes whose operators have no definition here, run on ONNX's reference evaluator.

One operator, OnnxNode, stands for all of them; the node is its parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.installed import version_of
from libdesc.onnx_reference import LIBRARY
from libdesc.registry import invoker
from ptensor.evaluation import lib_tagger
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import NativeError
from vtensor.language.cached import cached_property
from vtensor.language.operators import Context, operator, param
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.operators import DefinedBy

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]

#: Operators that are refused, since the evaluator's implementation may never end.
_ENDLESS = ("TfIdfVectorizer",)

#: Length at which the text of attributes is cut, in characters.
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class OneNode:
    """A model of a single ONNX node: its operator, attributes and versions.

    ``repr`` is for people to read; it shortens long attributes.

    Attributes:
        data: the bytes of the ``ModelProto``.
    """

    data: bytes

    @cached_property
    def model(self) -> ModelProto:
        """The parsed model. Its inputs and outputs are those that the node uses, in order."""
        from onnx import ModelProto

        model: ModelProto = ModelProto.FromString(self.data)
        return model

    @cached_property
    def evaluator(self) -> ReferenceEvaluator:
        """ONNX's reference evaluator of the model.

        Raises:
            NotImplementedError: the operator may never end. ONNX's own errors pass unchanged.
        """
        from onnx.reference import ReferenceEvaluator  # loads slowly, and few networks need it

        if self._node.op_type in _ENDLESS:
            raise NotImplementedError(f"{self.label} may never end")
        return ReferenceEvaluator(self.model)

    @property
    def label(self) -> str:
        """The domain and the name of the operator: ``onnx::Det``."""
        return f"{self._node.domain or 'onnx'}::{self._node.op_type}"

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Evaluate the node and return its outputs.

        Args:
            arrays: an array per input.
        """
        names = [value.name for value in self.model.graph.input]
        feeds = dict(zip(names, arrays, strict=True))
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in self.evaluator.run(None, feeds)]

    @property
    def _node(self) -> NodeProto:
        node: NodeProto = self.model.graph.node[0]
        return node

    def __repr__(self) -> str:
        from onnx.helper import printable_attribute

        text = ", ".join(str(printable_attribute(value)) for value in self._node.attribute)
        short = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}.."
        return f"<{self.label} {short}>" if short else f"<{self.label}>"


@operator("OnnxNode", dims={"x": "*", "*y": "*"}, traits=[DefinedBy(LIBRARY)])
class OnnxNode:
    """Apply an ONNX operator that has no definition here.

    Dims:
        x: any; one operand for each input that the node has    y: as in ``outputs``
    Args:
        node: the node.
        outputs: element type, and sizes by dim, of each output that is used.

    Source: ``onnx.reference.ReferenceEvaluator``.
    """

    node: OneNode = param()
    outputs: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = param()

    @property
    def label(self) -> str:
        """The operator's name in graphs and plans: ``onnx::Det``."""
        return self.node.label

    def compute(self, ctx: Context, *x: VTensor) -> tuple[VTensor, ...]:
        ys = tuple(
            VTensor(dtype, dict(dims), ctx.output(i))
            for i, (dtype, dims) in enumerate(self.outputs)
        )
        ctx.dispatch(self, x, ys)
        return ys


@invoker("OnnxNode", library="onnx_reference", python=True)
def run_node(ctx: Context, op: OnnxNode, *operands: VTensor) -> None:
    """Run the node on ONNX's evaluator, and check element types and shapes of the results.

    Raises:
        NativeError: the evaluator failed, or a result has another element type or shape than ONNX's
            shape inference says.
    """
    tensors = [PTensor(t).require(Layout.plain(t.dims)) for t in operands]
    sources, targets = tensors[: -len(op.outputs)], tensors[-len(op.outputs) :]
    if lib_tagger(LIBRARY, sources, targets):
        return
    try:  # on copies, since an implementation may write to its inputs
        results = op.node.run([source.data().copy() for source in sources])
    except Exception as error:  # whatever the evaluator raises
        pass_signals(error)
        text = f"onnx.reference failed: {type(error).__name__}: {error}"
        raise NativeError(f"{op.label} {ctx.node!r}: {text}") from error
    for target, result in zip(targets, results, strict=True):
        array = target.data()
        if (result.shape, result.dtype) != (array.shape, array.dtype):
            raise NativeError(
                f"{op.label} {ctx.node!r}: onnx.reference gives {result.dtype} {result.shape}, "
                f"but ONNX's shape inference says {array.dtype} {array.shape}"
            )
        array[...] = result


def version() -> str:
    """Return ONNX's version, and what the library is for, as a text."""
    return f"onnx.reference {version_of('onnx')}: whatever else ONNX has, slowly"
