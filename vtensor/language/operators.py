"""Operators: what a file in ``ops/`` declares, and the context that its ``compute`` is given.

An operator is a frozen dataclass of parameters with one method, ``compute(ctx, *inputs)``: it makes
the output VTensors and calls ``ctx.dispatch``. Everything that must hold of parameters and dims is
declared, and the check is generated from the declaration (``vtensor/language/checks.py``).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, dataclass_transform

from vtensor.errors import (
    DimError,
    DTypeError,
    GraphError,
    InvokerError,
    VTensorError,
    describe,
)
from vtensor.language.checks import CheckSource, compile_check, parameter_check
from vtensor.language.declaration import check_annotations, check_equal, parsed_dims
from vtensor.language.dims import DimSpec
from vtensor.language.failures import place_of, raised
from vtensor.language.tensor import CPU, Option, VTensor

T = TypeVar("T")

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def param(
    *,
    default: Any = dataclasses.MISSING,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[object] | None = None,
) -> Any:
    """A parameter of an operator, with the range that the generated check enforces."""
    rules = {"minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=rules)


class Operator(Protocol):
    """What every operator class is: a frozen dataclass with a ``compute``."""

    compute: Callable[..., Any]


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


#: See ``operator``.
Linear = Mapping[str, Mapping[str, str]]
Affine = Callable[..., tuple[Any, Any] | None]
Picks = Callable[..., tuple[Mapping[str, int], Any] | None]
Thins = Callable[[Any, VTensor, Mapping[str, int]], Any]


@dataclass(frozen=True)
class Clamp:
    """What a follower does: min(max(x, low), high); NaN stays NaN, and -infinity may become NaN."""

    low: float
    high: float


@dataclass(frozen=True)
class Plus:
    """What a follower does: x plus its other operand, their dims meeting by name."""


#: See ``operator``.
Post = Callable[[Any], Clamp | Plus]

#: Writes one node, which applies this operator instance.
Write = Callable[[NodeWriter, Any], None]


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
    """

    op_type: str
    since: int
    read: Callable[[NodeReader], VTensor | Sequence[VTensor]]
    names: Callable[[Naming], None]
    until: int | None = None
    write: Write | None = None


#: Counts the operations of a call: of an operator instance, its inputs and its outputs.
Cost = Callable[..., int]


def _read_elsewhere(node: NodeReader) -> VTensor:
    raise node.refuse("another operator's spelling reads it")


def written(op_type: str, since: int, write: Write) -> Spelling:
    """The spelling of an operator that is read as a part of another's: a bias, a factor."""
    return Spelling(op_type, since, _read_elsewhere, lambda _: None, write=write)


@dataclass(frozen=True)
class OperatorInfo:
    """A registered operator: its class and everything that was declared of it.

    Attributes:
        many: the roles that stand for any number of operands.
        cost: as ``operator`` has it; None where nothing is declared.
    """

    name: str
    cls: type
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    many: frozenset[str]
    dims: Mapping[str, DimSpec]
    equal: tuple[tuple[str, str], ...]
    elementwise: bool
    onnx: tuple[Spelling, ...]
    check: CheckSource
    structural: str = ""
    definition: str = "numpy"
    cost: Cost | int | None = None
    linear: Linear = field(default_factory=dict)
    affine: Affine | None = None
    post: Post | None = None
    picks: Picks | None = None
    thins: Thins | None = None
    file: str = ""
    line: int = 0

    def roles(self, inputs: int, outputs: int) -> tuple[str, ...]:
        """The role of each operand of a call: ``x w y``; a variadic one is numbered, ``x0 x1``."""
        return (*self._numbered(self.inputs, inputs), *self._numbered(self.outputs, outputs))

    @property
    def read_as(self) -> list[Spelling]:
        """The spellings in which ONNX's nodes are read as this operator."""
        return [spelling for spelling in self.onnx if spelling.read is not _read_elsewhere]

    @property
    def write(self) -> Write | None:
        """How the operator is written as nodes of ONNX; None where it is not."""
        return next((spelling.write for spelling in self.onnx if spelling.write), None)

    def operations(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> int:
        """How many operations on numbers a call is: as declared, else one an element it makes.

        What is not element-wise and declares nothing moves elements, and is none.
        """
        if self.cost is None:
            return self.elementwise * outputs[0].num_elements
        if isinstance(self.cost, int):
            return self.cost * inputs[0].num_elements
        return self.cost(op, *inputs, *outputs)

    def _numbered(self, roles: tuple[str, ...], count: int) -> tuple[str, ...]:
        if self.many.isdisjoint(roles):
            return roles[:count]
        *head, last = roles
        return (*head, *(f"{last}{i}" for i in range(count - len(head))))


#: Kinds of structural operators; ``rename`` takes ((old, new), ...), ``reshape`` takes
#: ((name, size), ...), ``slice`` axes and their starts, ends and steps, ``bias`` nothing: it adds
#: its second operand along that one's dims. The others are added as ONNX spells them first.
STRUCTURAL = ("rename", "reshape", "identity", "concat", "gather", "bias", "slice")

#: Those whose output is their input's memory under other dims.
VIEWS = ("rename", "reshape", "identity")

#: Every operator by name; filled by ``@operator``.
OPERATORS: dict[str, OperatorInfo] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(param, dataclasses.field))
def operator(
    name: str,
    *,
    dims: Mapping[str, str],
    equal: Sequence[tuple[str, str]] = (),
    elementwise: bool = False,
    onnx: Spelling | Sequence[Spelling] = (),
    structural: str = "",
    definition: str = "numpy",
    cost: Cost | int | None = None,
    linear: Linear | None = None,
    affine: Affine | None = None,
    post: Post | None = None,
    picks: Picks | None = None,
    thins: Thins | None = None,
) -> Callable[[type[T]], type[T]]:
    """Register a class as an operator.

    Args:
        name: the operator's name, as it stands in graphs and plans.
        dims: a row of dim names for each operand, by role; inputs are the parameters of
            ``compute``, the other roles are outputs. ``compute(self, ctx, *x)`` takes any number of
            inputs but none, ``compute(self, ctx, x, *more)`` one or more; a last output ``"*y"`` is
            any number of outputs.
        equal: pairs of products that must be equal, ``("x.C", "w.I * group")``.
        elementwise: the value at a place depends only on the inputs' values at that place.
        onnx: how ONNX writes it.
        structural: a kind of ``STRUCTURAL`` when this is the operator by which the front door does
            such a thing itself: names and dims that move no data, parts that are put together.
        definition: the library whose invoker says what the values are; one on it is owed.
        cost: operations on numbers (sums, products, comparisons, functions alike) for each element
            of the first input, or a function that counts them: ``(op, *inputs, *outputs) -> int``.
        linear: the inputs in which the output is linear, each with dims of the output and those
            that make them up in that input, slowest first, where they have other names:
            ``{"w": {"C": "G O"}}``. Slices of the input that are scaled scale the output's.
        affine: says that the output is ``factor * x + shift`` in one of the inputs. It is given the
            instance and the inputs, None for x, the others as arrays that broadcast; it returns the
            two, or None where the output is not affine in that input.
        post: what an instance does to its one operand that is not stored yet, if it may be fused
            behind another operator.
        picks: says which elements of the first input are read, where those are every so manieth
            along some dims, from the first on. It is given the instance and the inputs; it returns
            the steps by dim, and what does the same to the elements picked; else None.
        thins: makes an instance that computes every so manieth element of the output along some
            dims, from the first on, from the instance, the first input, and the steps by dim.

    Raises:
        GraphError: the name is taken, or ``dims`` and ``compute`` disagree.

    Source: the paper, section 4.3.
    """

    def register(cls: type[T]) -> type[T]:
        if not callable(getattr(cls, "compute", None)):
            raise GraphError(f"operator {name}: {cls.__qualname__} has no compute(self, ctx, ...)")
        if "__dataclass_fields__" not in vars(cls):  # those of a base are not all of its own
            try:
                cls = dataclass(frozen=True)(cls)
            except (TypeError, ValueError) as error:
                raise GraphError(f"operator {name}: {cls.__qualname__}: {error}") from None
        parameters = list(inspect.signature(cast(Operator, cls).compute).parameters.values())[1:]
        specs = parsed_dims(name, dims, [one.name for one in parameters])
        parameters = parameters[1:]
        inputs = tuple(p.name for p in parameters)
        variadic = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL
        outputs = tuple(role for role in specs if role not in inputs)
        many = frozenset(inputs[-1:] if variadic else ())
        many |= {role for role in outputs if f"*{role}" in dims}
        here, line = _place(cls)
        previous = OPERATORS.get(name)
        if previous is not None and (previous.file, previous.cls.__qualname__) != (
            here,
            cls.__qualname__,
        ):
            raise GraphError(f"operator {name} is already registered by {previous.file}")
        if structural and structural not in STRUCTURAL:
            raise GraphError(f"operator {name}: structural={structural!r} is none of {STRUCTURAL}")
        spellings = (onnx,) if isinstance(onnx, Spelling) else tuple(onnx)
        check_equal(name, cls, tuple(equal), specs)
        check_annotations(name, cls)
        source = CheckSource(name, cls, inputs, outputs, many, specs, tuple(equal))
        OPERATORS[name] = OperatorInfo(
            name,
            cls,
            inputs,
            outputs,
            many,
            specs,
            tuple(equal),
            elementwise,
            spellings,
            source,
            structural,
            definition,
            cost,
            linear or {},
            affine,
            post,
            picks,
            thins,
            here,
            line,
        )
        _check_on_construction(cls, name)
        cls.__operator__ = name  # type: ignore[attr-defined]
        return cls

    return register


def _place(cls: type) -> tuple[str, int]:
    """File and line of an operator's class; of its ``compute`` where it was made interactively."""
    try:
        return inspect.getsourcefile(cls) or "", inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        file, _, line = place_of(cast(Operator, cls).compute).rpartition(":")
        return file, int(line)


def spellings(op_type: str, opset: int) -> list[Spelling]:
    """The registered spellings of an ONNX operator that hold in an opset."""
    return [
        spelling
        for spelling in _spelled().get(op_type, ())
        if spelling.since <= opset <= (spelling.until or opset)
    ]


#: The operators of an index of spellings, and the index.
_index: tuple[list[OperatorInfo], Mapping[str, Sequence[Spelling]]] = ([], {})


def _spelled() -> Mapping[str, Sequence[Spelling]]:
    """All spellings by ONNX's name; made again when the operators are others."""
    global _index
    operators = list(OPERATORS.values())
    if _index[0] != operators:
        table: dict[str, list[Spelling]] = {}
        for info in operators:
            for spelling in info.read_as:
                table.setdefault(spelling.op_type, []).append(spelling)
        _index = operators, table
    return _index[1]


def structural_operator(kind: str) -> OperatorInfo:
    """The operator that declares itself ``structural=kind``.

    Raises:
        GraphError: none does; operators are registered when their files are imported.
    """
    for info in OPERATORS.values():
        if info.structural == kind:
            return info
    raise GraphError(f"no operator is registered with structural={kind!r}")


def _check_on_construction(cls: type, name: str) -> None:
    """Parameters are wrong from the moment they are given: say so then, not during a run."""
    check = parameter_check(name, cls)
    construct = cls.__init__  # type: ignore[misc]  # this very class is meant

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        check(self)

    init.__wrapped__ = construct  # type: ignore[attr-defined]  # keeps signature and help
    cls.__init__ = init  # type: ignore[misc]


def info_of(op: object) -> OperatorInfo:
    """What is registered of an operator instance.

    Raises:
        GraphError: it is no operator.
    """
    name = getattr(type(op), "__operator__", None)
    if name is None:
        raise GraphError(f"{op!r} is no operator; operators are registered with @operator")
    return OPERATORS[name]


def label_of(op: object) -> str:
    """What graphs and plans call an operator instance: its ``label`` if it has one, or its name.

    Raises:
        GraphError: it is no operator.
    """
    return str(getattr(op, "label", info_of(op).name))


@dataclass
class Context:
    """What ``compute`` is given: where its outputs go and how its work is handed on.

    This one hands on nothing and only checks: the graph builder infers shapes with it.

    Attributes:
        node: name of the node, for errors and plans.
        device: where the node is placed.
        followers: operators fused behind this one, each with its own VTensors; empty unless fusion
            offers some. The routine that an invoker returns says whether it does them as well.
    """

    node: str = ""
    device: str = CPU
    op: str = ""
    names: tuple[str, ...] = ()
    followers: tuple[Follower, ...] = ()

    def output(self, index: int) -> Option:
        """Where output ``index`` comes from: the last argument of a VTensor."""
        name = self.names[index] if index < len(self.names) else ""
        return Option(self.node, self.op, index, self.device, name)

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Check parameters and dims; then, where there is a library to call, call the best."""
        compile_check(info_of(op).check)(self.node, op, inputs, outputs)


@dataclass(frozen=True)
class Follower:
    """An operator fused behind another: applied to that one's output before anything is stored.

    ``operands`` are those that it has beside that output.
    """

    op: object
    operands: tuple[VTensor, ...] = field(default=())

    @property
    def does(self) -> Clamp | Plus | None:
        """What it does; None where its operator does not say."""
        post = info_of(self.op).post
        return post and post(self.op)


def _of_call(headline: str, info: OperatorInfo, inputs: Sequence[VTensor]) -> str:
    """A message with one line an input."""
    rows = zip(info.roles(len(inputs), 0), inputs, strict=True)
    return describe(headline, {role: (value.dtype, value.dims) for role, value in rows})


def run_compute(ctx: Context, op: object, inputs: Sequence[VTensor]) -> tuple[VTensor, ...]:
    """Run an operator's ``compute`` in a context and return its outputs.

    Errors that ``compute`` runs into get the node, the operator and one line an operand.
    """
    info = info_of(op)
    ctx.op = info.name
    variadic = not info.many.isdisjoint(info.inputs)
    least = max(len(info.inputs) - 1, 1) if variadic else len(info.inputs)
    if len(inputs) < least or (len(inputs) > least and not variadic):
        takes = f"at least {least}" if variadic else str(least)
        wanted = f"{takes} input{'s' * (least != 1)}"
        raise GraphError(f"{info.name} {ctx.node!r} takes {wanted}, {len(inputs)} given")
    try:
        result = cast(Operator, op).compute(ctx, *inputs)
    except (DimError, DTypeError) as error:
        if "\n" in str(error):
            raise
        raise type(error)(_of_call(f"{info.name} {ctx.node!r}: {error}", info, inputs)) from None
    except (VTensorError, MemoryError):
        raise
    except Exception as error:  # an author's own
        place = place_of(cast(Operator, op).compute)
        text = f"{info.name} {ctx.node!r}, compute ({place}): {raised(error, place)}"
        raise InvokerError(_of_call(text, info, inputs)) from error
    outputs = result if isinstance(result, tuple) else (result,)
    for index, output in enumerate(outputs):
        if not isinstance(output, VTensor):
            raise GraphError(f"{info.name} {ctx.node!r}: compute returned {output!r}, no VTensor")
        if output.option != ctx.output(index):
            raise GraphError(
                f"{info.name} {ctx.node!r}: output {index} is to be made with ctx.output({index}) "
                f"as its last argument, and to be returned at place {index}"
            )
    return outputs
