"""How ONNX writes an operator: what a ``Spelling`` reads and writes nodes with.

The protocols stand on this floor because operators are written against them; the ONNX front end,
above the operators, implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.errors import VTensorError
    from vtensor.language.tensor import VTensor


class NodeReader(Protocol):
    """One node of an ONNX model, as an operator's ``Spelling`` reads it."""

    opset: int
    name: str

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default where it is absent."""

    def element_type(self, name: str) -> str:
        """The element type that an attribute numbers; empty where it is absent or 0."""

    def has(self, index: int) -> bool:
        """True when the optional input ``index`` is given."""

    def input(self, index: int, names: str = "") -> VTensor:
        """Input ``index``; with ``names``, one a position, under these dim names."""

    @property
    def inputs(self) -> list[VTensor]:
        """All inputs that are given."""

    def constant(self, index: int) -> Any:
        """Input ``index`` as a NumPy array; an error when it is computed from data."""

    def axis(self, index: int, of: VTensor) -> str:
        """The dim at a position (negative counts from the end) of a value."""

    def output_names(self, index: int = 0) -> tuple[str, ...]:
        """The dim names that the model's naming gives to an output, a position each."""

    @property
    def output_count(self) -> int:
        """Number of outputs that the node lists, unused ones included."""

    def add(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator to the graph; a tuple of its outputs where it has several."""

    def ahead(self, op: object, *inputs: VTensor) -> VTensor:
        """As ``add``; of constants it makes another constant, now. For what has one output."""

    def made(self, array: Any, names: Sequence[str]) -> VTensor:
        """Return a constant of the node's own; ``names`` are the dims of its axes."""

    def reshape(self, x: VTensor, dims: Mapping[str, int]) -> VTensor:
        """The same elements in presentation order under other dims."""

    def refuse(self, reason: str) -> VTensorError:
        """The error that says that this node is not supported, and why."""


class NodeWriter(Protocol):
    """One node of a graph while an operator's ``Spelling`` writes it as nodes of ONNX.

    Attributes:
        opset: version of ONNX's operators to write for.
        inputs, outputs: the node's values; ``emit`` makes all outputs.
    """

    opset: int
    inputs: Sequence[VTensor]
    outputs: Sequence[VTensor]

    def operand(self, x: VTensor, order: Sequence[str] | None = None) -> str:
        """ONNX's name of a value with these dims at its positions; None is as it is presented.

        ``"G*O"`` is two dims at one position. A dim that ``x`` lacks has size 1 there, and no
        position at all where every earlier one is lacking too: ONNX repeats along those itself.
        """

    def constant(self, values: Any, dtype: str = "s64") -> str:
        """ONNX's name of a small constant: axes, a shape, a bound."""

    def shape(self, x: VTensor, sizes: Sequence[int]) -> str:
        """ONNX's name of the sizes that x, as it is presented, is reshaped to."""

    def element_type(self, dtype: str) -> int:
        """ONNX's number of an element type."""

    def follower(self, cls: type, fits: Callable[[VTensor], bool]) -> VTensor | None:
        """The second operand of the node behind this one, which is then written here as well.

        None unless that node applies ``cls``, alone reads this node's only output, as its first
        operand, and has a second that fits and is there by now. ``outputs`` then are that node's.
        """

    def emit(
        self, op_type: str, *inputs: str, order: Sequence[str] | None = None, **attributes: Any
    ) -> None:
        """Add the node that makes the outputs.

        Args:
            op_type: ONNX's operator; behind its domain, ``domain::name``, where that is not ONNX's.
            inputs: names of its inputs, "" where an optional one is left out.
            order: the dims at the positions of what ONNX makes, as for ``operand``; None is as the
                outputs are presented.
            attributes: by ONNX's names; None and () leave one out.
        """

    def refuse(self, reason: str) -> VTensorError:
        """The error that says why ONNX cannot say what this node does."""


class Naming(Protocol):
    """One node of an ONNX model while dims get their names: positions are unified, not values."""

    opset: int

    @property
    def roles(self) -> list[str]:
        """The roles of the inputs that are given, in order: ``x0 x1 ...``."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default where it is absent."""

    def rank(self, role: str) -> int:
        """Number of positions of ``"x0"`` (input 0) or ``"y0"`` (output 0); 0 when absent."""

    def name(self, role: str, names: str) -> None:
        """Give a value's positions these names."""

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Two positions are one dim."""

    def hint(self, role: str, names: str) -> None:
        """Names to use where nothing else names the positions."""


#: Writes one node, which applies this operator instance.
Write = Callable[[NodeWriter, Any], None]


class Ahead(NamedTuple):
    """What a node makes where its inputs are known before a run, but for open sizes.

    Attributes:
        compute: its only output, as an array: of a look-up of attributes, and its inputs as arrays.
        traced: it also does so with elements that are symbolic sizes.
        only_traced: traces alone use it; a graph of fixed sizes computes the node as any other.
    """

    compute: Callable[..., Any]
    traced: bool = False
    only_traced: bool = False


@dataclass(frozen=True)
class Spelling:
    """How ONNX writes an operator.

    Args:
        op_type: ONNX's name; behind its domain, ``domain::name``, where that is not ONNX's own.
        since, until: the opsets in which this spelling holds, both included; until None is "and
        later".
        names: which positions of inputs and outputs are one dim, and what they are called.
        read: adds this node's operators to the graph and returns its outputs.
        write: adds the nodes of ONNX that an instance of the operator is; None where another of
            its spellings does.
        ahead: computes a node's output ahead of a run, at every choice of sizes; None where that
            takes the way of any node.
    """

    op_type: str
    since: int
    read: Callable[[NodeReader], VTensor | Sequence[VTensor]]
    names: Callable[[Naming], None]
    until: int | None = None
    write: Write | None = None
    ahead: Ahead | None = None


def read_elsewhere(node: NodeReader) -> VTensor:
    raise node.refuse("another operator's spelling reads it")


def written(op_type: str, since: int, write: Write) -> Spelling:
    """The spelling of an operator that is read as a part of another's: a bias, a factor."""
    return Spelling(op_type, since, read_elsewhere, lambda _: None, write=write)
