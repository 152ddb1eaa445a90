"""Faults 41 to 52: simplifications, passes and the choice of variants."""

from __future__ import annotations

AREA = "optimizer"

ROWS = {
    (41, AREA, "optimizer/fold.py"): (
        "Of two affine nodes that are folded, the second does not scale the first one's shift.",
        "chain.factor * factor, chain.shift * factor + shift",
        "chain.factor * factor, chain.shift + shift",
    ),
    (42, AREA, "optimizer/fold.py"): (
        "Folding scales a weight that another node reads as well.",
        "and name in graph.constants and readers.only(name):",
        "and name in graph.constants:",
    ),
    (43, AREA, "optimizer/constants/computed.py"): (
        "Two factors of equal numbers along different axes count as one: a plan takes the weight "
        "that is scaled by the one for the other.",
        "return factor.shape, factor.tobytes()",
        "return factor.tobytes()",
    ),
    (44, AREA, "optimizer/match.py"): (
        "A pattern that has a constant twice matches two different constants.",
        "elif bound == value or (constant and self._same(bound, value)):",
        "elif bound == value or constant:",
    ),
    (45, AREA, "optimizer/match.py"): (
        "A rule replaces a node whose second output is still read.",
        "for name in node.outputs] + [*root.outputs[1:]]",
        "for name in node.outputs]",
    ),
    (46, AREA, "optimizer/rewrite.py"): (
        "A rule's result keeps its own order of dims where the replaced value had another.",
        "if [*result_value.dims] != [*wanted.dims]:",
        "if {*result_value.dims} != {*wanted.dims}:",
    ),
    (47, AREA, "optimizer/thin.py"): (
        "A window computes every second element although another reader picks every third.",
        " or any(steps != all_steps[0] for steps in all_steps):\n",
        ":\n",
    ),
    (48, AREA, "optimizer/part.py"): (
        "A product of which slices of heads are read is never computed in parts: each part would "
        "get as many columns as heads.",
        "span = slice(begin * unit, end * unit)",
        "span = slice(begin * unit, begin * unit + end - begin)",
    ),
    (49, AREA, "optimizer/constants/originals.py"): (
        "Two changes of a constant's order are combined in the wrong sequence.",
        "return self._source.turned(tuple(self._axes[axis] for axis in axes))",
        "return self._source.turned(tuple(axes[axis] for axis in self._axes))",
    ),
    (50, AREA, "optimizer/choice/ilp.py"): (
        "A Transform that several edges share costs nothing where only the first of them needs it.",
        "        for y in ys:\n",
        "        for y in ys[1:]:\n",
    ),
    (51, AREA, "optimizer/cancel.py"): (
        "Two Transforms become one although the type between them holds the values only nearly.",
        "return lossless(first_stored, second_stored) if same else preserves("
        "first_stored, second_stored)",
        "return lossless(first_stored, second_stored)",
    ),
    (52, AREA, "optimizer/lho.py"): (
        "Transforms of two outputs of one node to one layout become one Transform.",
        "            node.input == value.name\n            and graph.values",
        "            graph.values",
    ),
}
