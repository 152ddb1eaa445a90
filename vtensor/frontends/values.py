"""Inputs whose values decide shapes: a graph is made for each combination of such values.

Exporters and ONNX's own tests feed shapes, axes and sizes as inputs of a graph. Such an input is
small and has at most one dim. A value that is computed from data never decides shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

#: ONNX's numbers of these element types.
_INTEGER_TYPES = (7, 6, 9)

if TYPE_CHECKING:  # these import ONNX, which is loaded with the first model
    from vtensor.frontends.folding import Facts, Leaves
    from vtensor.frontends.network import Network, NetworkNode

#: Largest number of elements of an input whose value may decide shapes; a larger one is data.
LIMIT_ELEMENTS = 1024

#: Element types of the values that shapes are computed from.
INTEGERS = ("s64", "s32", "bool")


def deciding_inputs(name: str, network: Network, facts: Facts) -> list[str]:
    """Return the names of the model's inputs whose values make value ``name`` known before a run.

    Value ``name`` is then such an input itself, or it is computed from small integer inputs and
    constants alone. Empty if neither is so.
    """
    leaves = _leaves(name, network, facts)
    if leaves is None or not all(_small(leaf, facts) for leaf in leaves):
        return []
    integers = [leaf for leaf in leaves if leaf == name or network.inputs[leaf].dtype in INTEGERS]
    return integers if len(integers) == len(leaves) else []


def shape_makers(node: NetworkNode, network: Network, facts: Facts) -> list[str]:
    """Return the names of the model's inputs whose values decide sizes and elements of a node's
    outputs.

    Examples are a node that counts up to a number, or one that fills a tensor of a given shape.
    Once the values are known, it is computed before a run. Empty if the sizes are known already, or
    if the node also reads data, that is, an input with more than one float.
    """
    sizes = [facts.sizes(name) for name in node.outputs]
    if all(known is not None and None not in known for known in sizes):
        return []
    if not _folds(node):
        return []
    open_inputs = [name for name in node.inputs if name not in facts.static]
    leaves_of_inputs = [deciding_inputs(name, network, facts) for name in open_inputs]
    leaves = list(dict.fromkeys(leaf for each in leaves_of_inputs for leaf in each))
    numbers = all(
        network.inputs[n].dtype in INTEGERS or facts.sizes(n) in ((), (1,)) for n in leaves
    )
    return leaves if all(leaves_of_inputs) and numbers else []


def waits(node: NetworkNode, network: Network, facts: Facts) -> bool:
    """Return whether a node decides sizes and can be computed once values of a run are known.

    Its inputs are then small, and a run computes at least one of them. Such a node is computed
    between two segments of a run.
    """
    sizes = [facts.sizes(name) for name in node.outputs]
    if all(known is not None and None not in known for known in sizes) or not _folds(node):
        return False
    open_inputs = [name for name in node.inputs if name not in facts.static]
    computed = any(name in network.producers for name in open_inputs)
    return computed and all(_small(name, facts) for name in open_inputs)


def is_arithmetic(node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node computes small integers from as many or fewer small integers.

    Each segment that reads such values computes them itself, so that the sizes in it depend on the
    fewest values.
    """
    inputs = [name for name in node.inputs if name not in facts.static]
    names = [*inputs, *node.outputs]
    if not all(_integers(name, facts) and _small(name, facts) for name in names):
        return False
    most = max(_count(name, facts) for name in node.outputs)
    return _folds(node) and all(_count(name, facts) <= most for name in inputs)


def _integers(name: str, facts: Facts) -> bool:
    """Return whether a value has known sizes and integers as its elements."""
    kind, sizes = facts.types.get(name), facts.sizes(name)
    if kind is None or sizes is None or None in sizes:
        return False
    return kind.tensor_type.elem_type in _INTEGER_TYPES


def _count(name: str, facts: Facts) -> int:
    """Return the number of elements of a value of known sizes."""
    return prod(size or 0 for size in facts.sizes(name) or ())


def foldable(node: NetworkNode, known: Iterable[str], network: Network, facts: Facts) -> bool:
    """Return whether a node's outputs depend only on the inputs ``known`` and on constants."""
    leaves = [_leaves(name, network, facts) for name in node.outputs]
    return all(found is not None and set(found) <= set(known) for found in leaves)


def _small(name: str, facts: Facts) -> bool:
    """Return whether a value is small enough to decide shapes."""
    sizes = facts.sizes(name) or ()
    return len(sizes) <= 1 and prod(size or 0 for size in sizes) <= LIMIT_ELEMENTS


def _leaves(name: str, network: Network, facts: Facts) -> Leaves:
    """Return the names of the model's inputs that value ``name`` depends on.

    None if it depends on a node that cannot be computed before a run, even if its inputs are known.
    """
    known, waiting = facts.leaves, [name]
    while waiting:
        value = waiting[-1]
        if value in network.inputs:
            known.setdefault(value, (value,))
        if value in facts.static or value in known:
            waiting.pop()
            continue
        node = network.producers.get(value)
        inputs = [each for each in node.inputs if each not in facts.static] if node else []
        if node is None or not _folds(node):
            known[value] = None
        elif fresh := [each for each in inputs if each not in known]:
            waiting += fresh
        else:
            known[value] = _union(known[each] for each in inputs)
    return () if name in facts.static else known[name]


def _folds(node: NetworkNode) -> bool:
    """Return whether a node can be computed before a run once its inputs are known."""
    from vtensor.frontends.folding import Facts, folds

    return folds(node, Facts(static={*node.inputs}))


def _union(parts: Iterable[Leaves]) -> Leaves:
    """Return the union of several tuples of inputs; None if one of them is None."""
    inputs: dict[str, None] = {}
    for part in parts:
        if part is None:
            return None
        inputs.update(dict.fromkeys(part))
    return tuple(inputs)
