"""Spellings: how an operator is read from ONNX nodes and written as ONNX nodes.

The protocols are declared in this layer because operators use them; the ONNX front end, a layer
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
        """Return an attribute's value, or the default if it is absent."""

    def element_type(self, name: str) -> str:
        """Return the element type whose ONNX number an attribute has; empty if absent or 0."""

    def has(self, index: int) -> bool:
        """Return whether the optional input ``index`` is given."""

    def input(self, index: int, names: str = "") -> VTensor:
        """Return input ``index``; with ``names``, under these dim names, one for each position."""

    @property
    def inputs(self) -> list[VTensor]:
        """All inputs that are given."""

    def constant(self, index: int) -> Any:
        """Return input ``index`` as a NumPy array; refuse the node if the input is no constant."""

    def axis(self, index: int, of: VTensor) -> str:
        """Return a value's dim at a position; negative positions count from the end."""

    def output_names(self, index: int = 0) -> tuple[str, ...]:
        """Return the dim names of an output, one for each position."""

    @property
    def output_count(self) -> int:
        """The number of outputs that the node lists, unused ones included."""

    def add(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator to the graph and return its output; a tuple if it has several."""

    def ahead(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator with one output; if all inputs are constants, compute it now instead."""

    def made(self, array: Any, names: Sequence[str]) -> VTensor:
        """Return a new constant; ``names`` are the dims of the array's axes."""

    def reshape(self, x: VTensor, dims: Mapping[str, int]) -> VTensor:
        """Return the same elements, in presentation order, under other dims."""

    def refuse(self, reason: str) -> VTensorError:
        """Return the error that this node is not supported, and why."""


class NodeWriter(Protocol):
    """One node of a graph while an operator's ``Spelling`` writes it as ONNX nodes.

    Attributes:
        opset: the version of ONNX's operators to write.
        inputs, outputs: the node's values; ``emit`` produces all outputs.
    """

    opset: int
    inputs: Sequence[VTensor]
    outputs: Sequence[VTensor]

    def operand(self, x: VTensor, order: Sequence[str] | None = None) -> str:
        """Return the ONNX name of a value with its dims at given positions.

        Nodes that transpose or reshape it are added if necessary.

        Args:
            x: the value.
            order: the dims by position; None is presentation order. ``"G*O"`` puts two dims at one
                position. A dim that ``x`` lacks has size 1. If ``x`` lacks all dims before it as
                well, it gets no position, since ONNX broadcasts along missing first positions.
        """

    def constant(self, values: Any, dtype: str = "s64") -> str:
        """Return the ONNX name of a new small constant: axes, a shape, a bound."""

    def shape(self, x: VTensor, sizes: Sequence[int]) -> str:
        """Return the ONNX name of the shape to which x, in presentation order, is reshaped."""

    def element_type(self, dtype: str) -> int:
        """Return ONNX's number of an element type."""

    def follower(self, cls: type, fits: Callable[[VTensor], bool]) -> VTensor | None:
        """Merge the next node into this one, and return that node's second operand.

        The next node is then written together with this one, and ``outputs`` are its outputs. None
        unless it applies ``cls``, is the only reader of this node's only output, reads it as its
        first operand, and has a second operand that fits and is available here.
        """

    def emit(
        self, op_type: str, *inputs: str, order: Sequence[str] | None = None, **attributes: Any
    ) -> None:
        """Add the ONNX node that produces the outputs.

        Args:
            op_type: the ONNX operator; ``domain::name`` if the domain is not ONNX's own.
            inputs: names of the inputs; "" for an optional input that is left out.
            order: the dims by position of the ONNX node's output, as for ``operand``; None is the
                presentation order of the outputs.
            attributes: the attributes by ONNX's names; None and () leave an attribute out.
        """

    def refuse(self, reason: str) -> VTensorError:
        """Return the error that ONNX cannot express this node, and why."""


class Naming(Protocol):
    """One node of an ONNX model while the dims of its inputs and outputs get names, by position."""

    opset: int

    @property
    def roles(self) -> list[str]:
        """The roles of the inputs that are given, in order: ``x0 x1 ...``."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value, or the default if it is absent."""

    def rank(self, role: str) -> int:
        """Return the rank of ``"x0"`` (input 0) or ``"y0"`` (output 0); 0 if it is absent."""

    def name(self, role: str, names: str) -> None:
        """Give these names to a value's positions."""

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Make two positions one dim; negative positions count from the end."""

    def hint(self, role: str, names: str) -> None:
        """Propose names for a value's positions, used where they get no other name."""


#: Writes one node with a ``NodeWriter``, given the operator instance.
Write = Callable[[NodeWriter, Any], None]


class Ahead(NamedTuple):
    """The computation of a node before a run, from inputs that are known except for open sizes.

    Attributes:
        compute: returns the node's only output as an array, given a look-up of attributes and the
            inputs as arrays.
        traced: ``compute`` also takes arrays whose elements are symbolic sizes.
        only_traced: only traces use it; a graph of fixed sizes computes the node as any other.
    """

    compute: Callable[..., Any]
    traced: bool = False
    only_traced: bool = False


@dataclass(frozen=True)
class Spelling:
    """An ONNX operator that an operator is read from and written as.

    Args:
        op_type: the ONNX operator's name; ``domain::name`` if the domain is not ONNX's own.
        since, until: the first and the last opset of this spelling; None means all later ones.
        names: names the positions of inputs and outputs, and unifies those that are one dim.
        read: adds this node's operators to the graph and returns its outputs.
        write: adds ONNX nodes for an instance of the operator; None if another spelling does.
        ahead: computes the node's output before a run, for each combination of sizes; None if the
            node is always computed in a run.
    """

    op_type: str
    since: int
    read: Callable[[NodeReader], VTensor | Sequence[VTensor]]
    names: Callable[[Naming], None]
    until: int | None = None
    write: Write | None = None
    ahead: Ahead | None = None


def read_elsewhere(node: NodeReader) -> VTensor:
    """Raise the error of a node that another operator's spelling reads."""
    raise node.refuse("another operator's spelling reads it")


def written(op_type: str, since: int, write: Write) -> Spelling:
    """Return the spelling of an operator that is only written, such as a bias or a factor.

    Another operator's spelling reads it.
    """
    return Spelling(op_type, since, read_elsewhere, lambda _: None, write=write)
