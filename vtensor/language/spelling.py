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
    """One node of an ONNX model, as an operator's ``Spelling`` reads it.

    Attributes:
        opset: the version of ONNX's operators that the model uses.
        name: the node's name.
    """

    opset: int
    name: str

    @property
    def described(self) -> str:
        """The operator and the node's name, for messages."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute of the ONNX node, or ``default`` if it is absent."""

    def element_type(self, name: str) -> str:
        """Return the element type whose ONNX number is the value of the attribute ``name``.

        Empty if the attribute is absent or 0.
        """

    def has(self, index: int) -> bool:
        """Return whether the optional input ``index`` is given."""

    def input(self, index: int, names: str = "") -> VTensor:
        """Return input ``index``; ``names`` renames its dims, one name for each axis: ``"N C"``."""

    @property
    def inputs(self) -> list[VTensor]:
        """All inputs that are given."""

    def constant(self, index: int) -> Any:
        """Return input ``index`` as a NumPy array; raise an error if the input is no constant."""

    def axis(self, index: int, of: VTensor) -> str:
        """Return the name of the dim at axis ``index`` of the value ``of``; -1 is the last axis."""

    def output_names(self, index: int = 0) -> tuple[str, ...]:
        """Return the dim names of output ``index``, one for each axis."""

    @property
    def output_count(self) -> int:
        """The number of outputs that the node lists, unused ones included."""

    def gives(self, index: int) -> bool:
        """Return whether the node has output ``index``."""

    def add(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator to the graph and return its output; a tuple if it has several."""

    def ahead(self, op: object, *inputs: VTensor) -> VTensor:
        """Add an operator with one output, and return the output.

        If all inputs are constants, the output is computed now and is a constant.
        """

    def made(self, array: Any, names: Sequence[str]) -> VTensor:
        """Return a new constant with the elements of ``array``, whose axes have these dim names."""

    def reshape(self, x: VTensor, dims: Mapping[str, int]) -> VTensor:
        """Return the elements of ``x`` as a value with other dims, as ``numpy.reshape`` does.

        Args:
            x: a value, with its axes in the order of ``x.dims``.
            dims: the sizes of the result by dim, in the order of its axes.
        """

    def refuse(self, reason: str) -> VTensorError:
        """Return an error for the caller to raise: this node is not supported, for ``reason``."""


class NodeWriter(Protocol):
    """One node of a graph while an operator's ``Spelling`` writes it as ONNX nodes.

    Attributes:
        opset: the version of ONNX's operators to write.
        inputs: the values that the node reads.
        outputs: the values that the node computes; one call of ``emit`` produces all of them.
    """

    opset: int
    inputs: Sequence[VTensor]
    outputs: Sequence[VTensor]

    def operand(self, x: VTensor, order: Sequence[str] | None = None) -> str:
        """Return the ONNX name of a value, for use as an input, with its axes in a given order.

        Nodes that transpose or reshape the value are added if necessary.

        Args:
            x: the value.
            order: the dim of each axis, in order; None is the order of ``x.dims``. ``"G*O"`` merges
                two dims into one axis. A dim that ``x`` lacks becomes an axis of size 1, or no
                axis if no dim of ``x`` comes before it: ONNX broadcasts along missing first axes.
        """

    def constant(self, values: Any, dtype: str = "s64") -> str:
        """Add a small constant, such as axes or a bound, to the model and return its ONNX name."""

    def shape(self, x: VTensor, sizes: Sequence[int]) -> str:
        """Add the constant shape of a ``Reshape`` of ``x`` to ``sizes``, and return its ONNX name.

        The axes of ``x`` are in the order of ``x.dims``.
        """

    def element_type(self, dtype: str) -> int:
        """Return ONNX's number of an element type."""

    def follower(self, cls: type, fits: Callable[[VTensor], bool]) -> VTensor | None:
        """Merge the next node into this one, and return the next node's second operand.

        The next node is then written together with this one, and ``outputs`` are its outputs. None,
        without a merge, unless the next node applies ``cls``, is the only reader of this node's
        only output, reads that as its first operand, and has a second operand that ``fits`` accepts
        and that is available before this node.

        Args:
            cls: the class of the operator that the next node must apply.
            fits: returns whether the second operand can be written together with this node.
        """

    def emit(
        self, op_type: str, *inputs: str, order: Sequence[str] | None = None, **attributes: Any
    ) -> None:
        """Add the ONNX node that produces the outputs.

        Args:
            op_type: the ONNX operator; ``domain::name`` if the domain is not ONNX's own.
            inputs: ONNX names of the inputs; "" for an optional input that is left out.
            order: the dim of each axis of the ONNX node's output, as for ``operand``; None is the
                order of each output's ``dims``.
            attributes: the attributes by ONNX's names; None and () leave an attribute out.
        """

    def refuse(self, reason: str) -> VTensorError:
        """Return an error for the caller to raise: ONNX cannot express the node, for ``reason``."""


class Naming(Protocol):
    """One node of an ONNX model, while the axes of its inputs and outputs get dim names.

    A role is a text: ``"x0"`` is input 0 of the node, ``"y0"`` is output 0.

    Attributes:
        opset: the version of ONNX's operators that the model uses.
    """

    opset: int

    @property
    def roles(self) -> list[str]:
        """The roles of the inputs that are not left out, in order: ``x0 x1 ...``."""

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute of the ONNX node, or ``default`` if it is absent."""

    def rank(self, role: str) -> int:
        """Return the rank of ``"x0"`` (input 0) or ``"y0"`` (output 0); 0 if it is absent."""

    def name(self, role: str, names: str) -> None:
        """Name the axes of an input or output in order, ``name("x0", "N C")``.

        If there are more or fewer names than axes, the call has no effect.
        """

    def same(self, role: str, position: int, other: str, other_position: int) -> None:
        """Make an axis of one input or output the same dim as an axis of another.

        Args:
            role, other: the two inputs or outputs, ``"x0"`` or ``"y0"``.
            position, other_position: the index of the axis in each; -1 is the last.
        """

    def hint(self, role: str, names: str) -> None:
        """Propose names for those axes of an input or output that get no name in any other way.

        Args:
            role: the input or output, ``"x0"`` or ``"y0"``.
            names: a name for each axis, ``"N C"``. If there are more or fewer names than axes, the
                call has no effect.
        """


#: Writes one node with a ``NodeWriter``, given the operator instance.
Write = Callable[[NodeWriter, Any], None]


#: Returns the axis along which an output has what a run finds, by the output's index; called with a
#: function that returns a node's attribute, or a default.
Counts = Callable[[Callable[[str, Any], Any]], Mapping[int, int]]

#: The domain of the operators that deliver outputs of the largest size, and the number of what they
#: have found as one more output.
COUNTED = "vtensor"


class Ahead(NamedTuple):
    """How a node is computed before a run, if all that its inputs depend on is constants and open
    sizes.

    Attributes:
        compute: returns the node's only output as an array. Its first argument is a function that
            returns an attribute, given its name; the others are the inputs as arrays.
        traced: True if ``compute`` also takes arrays whose elements are symbolic sizes.
        only_traced: True if ``compute`` is used only in a trace. If no size is symbolic, the node's
            operator computes the output.
    """

    compute: Callable[..., Any]
    traced: bool = False
    only_traced: bool = False


@dataclass(frozen=True)
class Spelling:
    """How an operator of VTensor is read from one ONNX operator, and written as it.

    Args:
        op_type: the ONNX operator's name; ``domain::name`` if the domain is not ONNX's own.
        since, until: the first and the last opset of this spelling; None means all later ones.
        names: gives each axis of the node's inputs and outputs a dim name; axes that are the same
            dim get the same name.
        read: adds the operators that compute the node to the graph, and returns the node's outputs.
        write: adds ONNX nodes for an instance of the operator; None if another spelling of it does
            so.
        ahead: computes the node's output before a run, for each combination of sizes; None if the
            node is always computed in a run.
        kept: called with the element types of the inputs of a node on constants, of which the first
            has several elements. Returns whether the node stays in the graph: its output would take
            more memory, and a library may have a kernel for its inputs. None if it never does.
        rank: returns the rank of the node's output 0, for operators that ONNX's inference does not
            know.
        counts: if only a run knows how much the operator finds: called with a function that returns
            an attribute, it returns the axis along which an output has what is found, by the
            output's index. None for other operators.
    """

    op_type: str
    since: int
    read: Callable[[NodeReader], VTensor | Sequence[VTensor]]
    names: Callable[[Naming], None]
    until: int | None = None
    write: Write | None = None
    ahead: Ahead | None = None
    kept: Callable[[Sequence[str]], bool] | None = None
    rank: Callable[[Naming], int] | None = None
    counts: Counts | None = None


@dataclass(frozen=True)
class Refusal:
    """The ``read`` of a spelling that refuses every node.

    Attributes:
        reason: why.
    """

    reason: str

    def __call__(self, node: NodeReader) -> VTensor:
        """Raise the error that this node cannot be read."""
        raise node.refuse(self.reason)


#: The ``read`` of all spellings that are used for writing only.
read_elsewhere = Refusal("another operator's spelling reads it")


def written(op_type: str, since: int, write: Write) -> Spelling:
    """Return a spelling that is used for writing only, for an operator such as a bias or a factor.

    When a model is read, ONNX nodes of this ``op_type`` become another operator.

    Args:
        op_type: the ONNX operator's name.
        since: the first opset of the spelling.
        write: adds ONNX nodes for an instance of the operator.
    """
    return Spelling(op_type, since, read_elsewhere, lambda _: None, write=write)


def _refuse_to_count(node: NodeReader) -> VTensor:
    """Raise the error that only a run knows how much an operator finds."""
    raise node.refuse("only a run knows the sizes of its outputs")


def counted(
    op_type: str,
    since: int,
    read: Callable[[NodeReader], Sequence[VTensor]],
    counts: Counts,
) -> tuple[Spelling, Spelling]:
    """Return the spellings of an operator of which only a run knows how much it finds.

    The node of a model becomes one of the domain ``COUNTED``, with one more output, the number of
    what is found, and a slice by that number of each output of ``counts``.

    Args:
        op_type, since, read, counts: the arguments of ``Spelling``; ``read`` reads the node of the
            domain ``COUNTED``.
    """
    own = f"{COUNTED}::{op_type}"
    return (
        Spelling(op_type, since, _refuse_to_count, lambda _: None, counts=counts),
        Spelling(own, 1, read, lambda _: None),
    )
