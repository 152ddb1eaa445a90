"""Constant factors and shifts behind a linear operator go into its constant, and into one bias.

    (x * w) * a + b  =  x * (w * a) + b

Which operators are linear in what, and which multiply and add, is their own declaration
(the traits ``Linear`` and ``Affine``). A batch normalization behind a convolution is the case
that matters: all that is left of it is the addition of a bias.

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
from optimizer.computed import Computed, Made, multiplied, origin, times
from optimizer.magnitude import largest
from optimizer.readers import Readers
from ptensor.pages import Room, one_after_the_other
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, info_of, label_of
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Affine, Linear

Array = np.ndarray[Any, Any]

#: Element types that are folded: in a narrower one a weight would be rounded a second time.
FOLDED = ("f32", "f64")


def fold(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """The same network with every chain folded that can be.

    A chain is a node that is linear in a constant, and affine nodes behind it, each the only reader
    of the one before. An affine node that is pinned to a library stays; so does one behind a value
    that is an output. New constants are computed in f64 and rounded once; where one would not be
    finite, the chain stays.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    constants = Computed(graph.constants)
    made = replace(
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
        _replace(made, chain)
    return made


@dataclass(frozen=True)
class Chain:
    """A node that is linear in a constant, and the affine nodes behind it.

    Attributes:
        lead: the linear node.
        weights: its constant.
        parts: the dims of the output along which it can be scaled, each with the dims of the
            constant that make it up.
        behind: the affine nodes, in order.
        dims: the one dim along which their constants lie; none where those are single numbers.
        factor, shift: what they do together: one number, or one an element of that dim.
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
        """What its last node makes, the first where that is several."""
        return (self.lead, *self.behind)[-1].outputs[0]

    @property
    def dim(self) -> str:
        """The dim of the output along which it is scaled and shifted."""
        return next(iter(self.dims or self.parts))

    @property
    def scales(self) -> bool:
        """The linear node's constant becomes another one."""
        return bool((self.factor != 1).any())

    @property
    def worth_it(self) -> bool:
        """A node less runs, or one that adds what a library takes as a bias."""
        several = len(self.behind) > 1 or self.scales
        return several or any(info_of(node.op).structural != "bias" for node in self.behind)

    @property
    def factors(self) -> Array:
        """The factor along the axes of the linear node's constant."""
        parts, dims = self.parts[self.dim], list(self.weights.dims)
        sizes = [self.weights.size(part) for part in parts]
        factor = np.broadcast_to(self.factor, prod(sizes)).reshape(sizes)
        factor = factor.transpose(sorted(range(len(parts)), key=lambda i: dims.index(parts[i])))
        shape = [size if dim in parts else 1 for dim, size in self.weights.dims.items()]
        return factor.reshape(shape)

    def scaled(self, weights: Array) -> Array:
        """The linear node's constant times the factor."""
        return multiplied(weights, self.factors)

    def bias(self) -> Array:
        """What is left to add, along ``dim``."""
        sizes = (self.weights.size(part) for part in self.parts[self.dim])
        with np.errstate(all="ignore"):
            shift = self.shift.astype(numpy_dtype(self.weights.dtype))
        return np.broadcast_to(shift, prod(sizes))


def _chains(graph: Graph, preferences: Preferences) -> Iterator[Chain]:
    """The chains that are worth it and whose new constants are finite."""
    readers, room = Readers(graph), one_after_the_other()
    for lead in graph.nodes.values():
        chain = longer = _start(graph, lead, readers)
        while longer is not None:
            chain, node = longer, readers.only(longer.value)
            longer = None if node is None else _longer(graph, chain, node, preferences)
        if chain is not None and chain.worth_it and _finite(chain, graph.constants, room):
            yield chain


def _finite(chain: Chain, constants: Mapping[str, Array], room: Room) -> bool:
    """No number of a chain's new constants is infinite, or none at all; ``room`` as ``largest``."""
    name, bias = chain.weights.name, chain.bias()
    if not np.isfinite([bias.min(), bias.max()]).all():
        return False
    if not chain.scales:
        return True
    source, change = origin(constants, name)
    most = largest(constants[name] if change else source, room) * np.abs(chain.factor).max()
    if most <= np.finfo(numpy_dtype(chain.weights.dtype)).max:
        return True
    made = chain.scaled(constants[name])
    return bool(np.isfinite([made.min(), made.max()]).all())


def _start(graph: Graph, node: Node, readers: Readers) -> Chain | None:
    """The chain of a node that is linear in a constant of its own; None where it is not."""
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
    for dim, size in out.dims.items():
        parts = [part for part in names.get(dim, dim).split() if part in weights.dims]
        if parts and prod(map(weights.size, parts)) == size:
            yield dim, parts


def _longer(graph: Graph, chain: Chain, node: Node, preferences: Preferences) -> Chain | None:
    """The chain with the node that reads its value; None where that stays, or is not affine."""
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
    given = [_vector(graph.constants[n]) if n in constants else None for n in node.inputs]
    with np.errstate(all="ignore"):
        if (found := affine.coefficients(node.op, *given)) is None:
            return None
        factor, shift = map(_vector, found)
        factor, shift = chain.factor * factor, chain.shift * factor + shift
    return replace(chain, behind=(*chain.behind, node), dims=dims, factor=factor, shift=shift)


def _vector(array: object) -> Array:
    return np.asarray(array, np.float64).reshape(-1)


def _replace(graph: Graph, chain: Chain) -> None:
    """Leave of a chain its linear node, and a bias in the place and under the name of its last."""
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
