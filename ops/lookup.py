"""Tables of keys and values; probabilities of classes from those of pairs of classes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from libdesc import Routine, eigen, invoker
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, Array, wide
from ops._learned import ML, applied, as_type
from ops._names import fresh, same_names
from ops._places import one_output
from ops._windows import in_order
from ptensor import PTensor
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor

#: The element types of keys.
_KEYS = ("s64", "s32", "f32", "f64")

#: By the end of an attribute's name, NumPy's type of its numbers, and the default value.
_KINDS = {"int64": (np.int64, -1), "float": (np.float32, -0.0)}


def _ascending(keys: Array, values: Array, default: Any) -> tuple[Array, Array]:
    """Return keys in ascending order, and their values with that of no key at the end.

    Of equal keys, the first one counts.
    """
    unique, places = np.unique(keys, return_index=True)
    return unique, np.append(values[places], np.asarray(default, values.dtype))


def _looked_up(node: NodeReader, x: VTensor, keys: Array, values: Array) -> VTensor:
    tables = [node.made(keys, ("key",)), node.made(values, ("value",))]
    result: VTensor = node.add(Lookup(), x, *tables)
    return result


def _listed(node: NodeReader, part: str) -> tuple[Array, str] | None:
    """Return the numbers of a LabelEncoder's attribute, and the end of the attribute's name.

    None if it has none of these numbers.
    """
    tensor = node.attribute(f"{part}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1), "tensor"
    for kind, (number, _) in _KINDS.items():
        if (values := node.attribute(f"{part}_{kind}s")) is not None:
            return np.asarray(values, number), kind
    return None


def _read_old_encoder(node: NodeReader) -> VTensor:
    return _read_encoder(node, nan=False)


def _read_encoder(node: NodeReader, nan: bool = True) -> VTensor:
    """Read a LabelEncoder; ``nan`` says whether NaN, if it is a key, is equal to itself."""
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys is None or values is None or len(keys[0]) != len(values[0]):
        raise node.refuse("keys and values must be lists of numbers, of one length")
    default = node.attribute(f"default_{values[1]}")
    if default is None:
        default = _KINDS["float" if values[0].dtype.kind == "f" else "int64"][1]
    known = keys[0] == keys[0] if not nan else np.ones(len(keys[0]), bool)
    table = _ascending(keys[0][known], values[0][known], np.reshape(default, -1)[0])
    return _looked_up(node, node.input(0), *table)


def _read_one_hot(node: NodeReader) -> VTensor:
    x, names = node.input(0), node.output_names()
    cats = np.asarray(node.attribute("cats_int64s", []), np.int64)
    if not cats.size:
        raise node.refuse("it has no categories")
    if not node.attribute("zeros", 1):
        raise node.refuse("zeros=0: an unknown category is to be an error")
    dim = names[-1] if len(names) == x.ndimensions() + 1 else "category"
    dim = fresh(dim, x.dims)
    y = applied(node, "Equal", as_type(node, x, "s64"), node.made(cats, (dim,)))
    return as_type(node, y)


@operator(
    "Lookup",
    dims={"x": "*", "keys": "key", "values": "value", "y": "*"},
    holds=[
        (
            lambda _, *inputs: inputs[2].size("value") == inputs[1].size("key") + 1,
            "there must be one value more than keys",
        )
    ],
    traits=[Cost(8)],
    onnx=[
        Spelling(f"{ML}LabelEncoder", 1, _read_old_encoder, same_names, until=3),
        Spelling(f"{ML}LabelEncoder", 4, _read_encoder, same_names),
        Spelling(
            f"{ML}OneHotEncoder",
            1,
            _read_one_hot,
            same_names,
            rank=lambda node: node.rank("x0") + 1,
        ),
    ],
)
class Lookup:
    """Replace each element by the value of its key.

    y = values[k] where x == keys[k]; values[last] where x is no key. NaN is equal to NaN.

    Dims:
        x, y: any, the same    keys: key, ascending, NaN last    values: value, one more than key
    Raises:
        DimError: there are as many values as keys, not one more.

    >>> from vtensor.operators import Context
    >>> x, keys = VTensor("s64", {"N": 5}), VTensor("s64", {"key": 3})
    >>> Lookup().compute(Context(), x, keys, VTensor("f32", {"value": 4})).summary()
    'f32 N=5'

    Source: ONNX operator LabelEncoder of ai.onnx.ml, version 4.
    """

    def compute(self, ctx: Context, x: VTensor, keys: VTensor, values: VTensor) -> VTensor:
        return one_output(ctx, self, [x, keys, values], x.dims, values.dtype)


def _one_type(op: Lookup, x: VTensor, keys: VTensor, *_: VTensor) -> bool | str:
    return x.dtype == keys.dtype or "x and keys have different element types"


_TYPES = {"x": _KEYS, "keys": _KEYS}


@invoker("Lookup", library="eigen", dtypes=_TYPES, when=_one_type)
def eigen_lookup(
    ctx: Context, op: Lookup, x: VTensor, keys: VTensor, values: VTensor, y: VTensor
) -> Routine:
    return eigen.lookup(x, keys, values, y)


@definition("Lookup")
def lookup(
    ctx: Context, op: Lookup, x: PTensor, keys: PTensor, values: PTensor, y: PTensor
) -> None:
    known = keys.data()
    at = np.searchsorted(known, x.data())
    near = known[at.clip(max=max(len(known) - 1, 0))] if len(known) else x.data() * np.nan
    found = (near == x.data()) | ((near != near) & (x.data() != x.data()))
    y.data()[...] = values.data()[np.where(found & (at < len(known)), at, len(known))]


def _turns(op: Any, x: VTensor, *_: VTensor) -> int:
    """Return the operations of about 10 turns, each of three products and sums per matrix entry."""
    return int(60 * x.size("N") * op.classes**2)


@operator(
    "PairwiseProbabilities",
    dims={"x": "N pair", "y": "N class"},
    holds=[
        (
            lambda op, x: 2 * x.size("pair") == op.classes * (op.classes - 1),
            "x must have a pair for each two of {op.classes} classes",
        )
    ],
    traits=[Cost(_turns)],
)
class PairwiseProbabilities:
    """Estimate the probabilities of classes from those of pairs of classes.

    They minimise the sum over pairs of (x[j, i] * y[i] - x[i, j] * y[j])**2, and add up to 1.

    Dims:
        x: N, pair: the probability of the first class of (0, 1), (0, 2), ..., (1, 2), ...
        y: N class
    Args:
        classes: the number of classes.
    Raises:
        DimError: x has another number of pairs.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 5, "pair": 3})
    >>> PairwiseProbabilities(3).compute(Context(), x).summary()
    'f32 N=5 class=3'

    Source: Wu, Lin, Weng, Probability Estimates for Multi-class Classification by Pairwise
    Coupling, 2004, algorithm 2; ONNX operator SVMClassifier of ai.onnx.ml, as ONNX Runtime has it.
    """

    classes: int = param(minimum=2)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        return one_output(ctx, self, [x], {"N": x.size("N"), "class": self.classes})


@invoker("PairwiseProbabilities", library="eigen", dtypes=["f32"])
def eigen_pairs(ctx: Context, op: PairwiseProbabilities, x: VTensor, y: VTensor) -> Routine:
    return eigen.pair_probabilities(x, y)


@definition("PairwiseProbabilities", dtypes=FLOATS, order=in_order("N pair class"))
def pairs(ctx: Context, op: PairwiseProbabilities, x: PTensor, y: PTensor) -> None:
    count, pairs_of = op.classes, wide(x.data())
    results = np.empty((len(pairs_of), count), pairs_of.dtype)
    for row, found in zip(pairs_of, results, strict=True):
        wins = np.zeros((count, count), row.dtype)
        for number, (one, two) in enumerate(combinations(range(count), 2)):
            wins[one, two] = row[number].clip(1e-7, 1 - 1e-7)
            wins[two, one] = 1 - wins[one, two]
        square = -wins.T * wins + np.diag((wins.T**2).sum(1))
        found[...] = 1 / count
        for _ in range(100):
            product = square @ found
            whole = found @ product
            if not np.abs(product - whole).max() >= 0.005 / count:
                break
            for at in range(count):
                step = (whole - product[at]) / square[at, at]
                found[at] += step
                whole = (whole + step * (step * square[at, at] + 2 * product[at])) / (1 + step) ** 2
                product = (product + step * square[at]) / (1 + step)
                found /= 1 + step
    y.data()[...] = results
