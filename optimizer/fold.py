"""Constant factors and shifts after a linear operator go into the operator's constant and one bias.

    (x * w) * a + b  =  x * (w * a) + b

Operators declare that they are linear in an operand, or that they multiply by constants and add
constants (the traits ``Linear`` and ``Affine``). The case that matters is a batch normalization
after a convolution: only the addition of a bias remains of it.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018, section 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from libdesc.preferences import EVERY, Preferences
from optimizer.constants.computed import Computed, Made, multiplied, origin, times
from optimizer.constants.magnitude import largest
from optimizer.readers import Readers
from ptensor.pages import Room, one_after_the_other
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, info_of, label_of
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Affine, Linear

Array = np.ndarray[Any, Any]

#: Element types of constants that are folded. Constants of a narrower type would be rounded a
#: second time.
FOLDED = ("f32", "f64")


def fold(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with every chain folded that can be folded.

    A chain is a node that is linear in a constant, with affine nodes after it (nodes that multiply
    and add constants). Each of these alone reads the output of the node before. The chain ends
    before an affine node that is pinned to a library, and at a value that is an output of the
    graph. New constants are computed in f64 and rounded once. If one of them would not be finite,
    the chain is not folded.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    constants = Computed(graph.constants)
    folded = replace(
        graph,
        values=dict(graph.values),
        constants=constants,
        nodes=dict(graph.nodes),
        merged=dict(graph.merged),
    )
    for chain in _chains(graph, preferences):
        if chain.scales:
            factors = chain.factors
            constants.change(chain.weights.name, Made(chain.scaled, times(factors), factors))
        _replace(folded, chain)
    return folded


@dataclass(frozen=True)
class Chain:
    """A node that is linear in a constant, and the affine nodes after it.

    Attributes:
        lead: the linear node.
        weights: the constant in which ``lead`` is linear.
        parts: for each dim of the output along which ``lead`` can be scaled: the dims of the
            constant that make up this dim, the slowest first.
        behind: the affine nodes (which multiply and add constants), in order.
        dims: the one dim of the output along which the constants of the affine nodes vary; empty if
            all are single numbers.
        factor, shift: the number by which all affine nodes together multiply, and the number that
            they add; or one such number for each index of that dim.
    """

    lead: Node
    weights: VTensor
    parts: Mapping[str, list[str]]
    behind: tuple[Node, ...] = ()
    dims: frozenset[str] = frozenset()
    factor: Array = field(default_factory=lambda: np.ones(1))
    shift: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def value(self) -> str:
        """The name of the first output of the chain's last node."""
        return (self.lead, *self.behind)[-1].outputs[0]

    @property
    def dim(self) -> str:
        """The dim of the output along which the chain scales and shifts."""
        return next(iter(self.dims or self.parts))

    @property
    def scales(self) -> bool:
        """True if folding changes the constant of the linear node, since a factor is not 1."""
        return bool((self.factor != 1).any())

    @property
    def worth_it(self) -> bool:
        """True if folding removes a node, or replaces one by the addition of a bias, which
        libraries can fuse.
        """
        several = len(self.behind) > 1 or self.scales
        return several or any(info_of(node.op).structural != "bias" for node in self.behind)

    @property
    def factors(self) -> Array:
        """The factors, as an array with the axes of the linear node's constant.

        An axis has size 1 if the factors do not vary along it.
        """
        parts, dims = self.parts[self.dim], list(self.weights.dims)
        sizes = [self.weights.size(part) for part in parts]
        factor = np.broadcast_to(self.factor, prod(sizes)).reshape(sizes)
        factor = factor.transpose(sorted(range(len(parts)), key=lambda i: dims.index(parts[i])))
        shape = [size if dim in parts else 1 for dim, size in self.weights.dims.items()]
        return factor.reshape(shape)

    def scaled(self, weights: Array) -> Array:
        """Return ``weights``, the constant of the linear node, times the factors."""
        return multiplied(weights, self.factors)

    def bias(self) -> Array:
        """Return the bias that remains to be added: one element for each index of ``dim``."""
        sizes = (self.weights.size(part) for part in self.parts[self.dim])
        with np.errstate(all="ignore"):
            shift = self.shift.astype(numpy_dtype(self.weights.dtype))
        return np.broadcast_to(shift, prod(sizes))


def _chains(graph: Graph, preferences: Preferences) -> Iterator[Chain]:
    """Yield the chains that are worth folding and whose new constants are finite."""
    readers, room = Readers(graph), one_after_the_other()
    for lead in graph.nodes.values():
        chain = longer = _start(graph, lead, readers)
        while longer is not None:
            chain, node = longer, readers.only(longer.value)
            longer = None if node is None else _extended(graph, chain, node, preferences)
        if chain is not None and chain.worth_it and _finite(chain, graph.constants, room):
            yield chain


def _finite(chain: Chain, constants: Mapping[str, Array], room: Room) -> bool:
    """Return whether all new constants of a chain are finite.

    Args:
        chain: the chain.
        constants: the graph's constants by name.
        room: allocates memory for reading constants, as for ``largest``.
    """
    name, bias = chain.weights.name, chain.bias()
    if not np.isfinite([bias.min(), bias.max()]).all():
        return False
    if not chain.scales:
        return True
    source, key = origin(constants, name)
    bound = largest(constants[name] if key else source, room) * np.abs(chain.factor).max()
    if bound <= np.finfo(numpy_dtype(chain.weights.dtype)).max:
        return True
    scaled = chain.scaled(constants[name])
    return bool(np.isfinite([scaled.min(), scaled.max()]).all())


def _start(graph: Graph, node: Node, readers: Readers) -> Chain | None:
    """Return the chain of ``node`` alone, to which affine nodes may be added.

    Returns None unless the node is linear in a constant that no other node reads.
    """
    info = info_of(node.op)
    linear = info.trait(Linear)
    if linear is None:
        return None
    for role, name in zip(info.roles(len(node.inputs), 0), node.inputs, strict=True):
        if role in linear.inputs and name in graph.constants and readers.only(name):
            weights, out = graph.values[name], graph.values[node.outputs[0]]
            parts = dict(_parts(weights, out, linear.inputs[role]))
            if parts and weights.dtype == out.dtype in FOLDED and weights.num_elements:
                return Chain(node, weights, parts)
    return None


def _parts(
    weights: VTensor, out: VTensor, names: Mapping[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield (dim, parts) for each dim of the output that is made up of dims of the constant.

    The parts are these dims of the constant, the slowest first.

    Args:
        weights: the constant in which the node is linear.
        out: the output of the node.
        names: by dim of the output, the dims that it is made up of, separated by spaces, as in the
            trait ``Linear``.
    """
    for dim, size in out.dims.items():
        parts = [part for part in names.get(dim, dim).split() if part in weights.dims]
        if parts and prod(map(weights.size, parts)) == size:
            yield dim, parts


def _extended(graph: Graph, chain: Chain, node: Node, preferences: Preferences) -> Chain | None:
    """Return the chain with ``node``, which follows it, added.

    Returns None if the node is not affine (multiplies and adds constants) or may not be folded.
    """
    info, constants = info_of(node.op), [name for name in node.inputs if name != chain.value]
    affine = info.trait(Affine)
    if affine is None or not all(name in graph.constants for name in constants):
        return None
    if preferences.pinned(node.name, info.name):
        return None
    before, after = graph.values[chain.value], graph.values[node.outputs[0]]
    if (before.dtype, [*before.dims.items()]) != (after.dtype, [*after.dims.items()]):
        return None
    sizes = [pair for name in constants for pair in graph.values[name].dims.items()]
    dims = chain.dims | {dim for dim, size in sizes if size != 1}
    if len(dims) > 1 or not dims <= chain.parts.keys():
        return None
    operands = [_vector(graph.constants[n]) if n in constants else None for n in node.inputs]
    with np.errstate(all="ignore"):
        if (coefficients := affine.coefficients(node.op, *operands)) is None:
            return None
        factor, shift = map(_vector, coefficients)
        factor, shift = chain.factor * factor, chain.shift * factor + shift
    return replace(chain, behind=(*chain.behind, node), dims=dims, factor=factor, shift=shift)


def _vector(array: object) -> Array:
    return np.asarray(array, np.float64).reshape(-1)


def _replace(graph: Graph, chain: Chain) -> None:
    """Replace a chain in the graph by its linear node and a node that adds a bias.

    The latter has the name and the output of the chain's last node. If the bias is 0, the linear
    node alone remains.
    """
    *between, last = chain.behind
    for node in between:
        del graph.nodes[node.name]
    graph.merged.update({node.name: chain.lead.name for node in chain.behind})
    bias = chain.bias()
    if not bias.any():
        del graph.nodes[last.name]
        outputs = (*last.outputs, *chain.lead.outputs[1:])
        graph.nodes[chain.lead.name] = replace(chain.lead, outputs=outputs)
        return
    name = f"{last.name}:bias"
    while name in graph.values:
        name += "'"
    graph.constants[name] = bias
    dims = {chain.dim: bias.size}
    graph.values[name] = VTensor(chain.weights.dtype, dims, Option(name=name))
    op = OPERATORS.structural("bias").cls()
    inputs = (chain.lead.outputs[0], name)
    graph.nodes[last.name] = replace(last, op=op, op_name=label_of(op), inputs=inputs)
