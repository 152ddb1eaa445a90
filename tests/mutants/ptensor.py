"""Faults 76 to 82: layouts, encodings, memory and rows of layouts."""

from __future__ import annotations

AREA = "ptensor"

ROWS = {
    (76, AREA, "ptensor/layout.py"): (
        "The outer part of a dim that is faster than its blocks steps by one element.",
        "            unit if axis.block else prod(blocks.get(axis.dim, ()))\n",
        "            unit\n",
    ),
    (77, AREA, "ptensor/layout.py"): (
        "Two layouts that put all elements alike are the same although one has more pads.",
        "if mine != theirs or mine == 0:",
        "if mine == 0 or theirs == 0:",
    ),
    (78, AREA, "ptensor/convert.py"): (
        "A NaN becomes the stored integer 0, not the zero point.",
        "    counts[np.isnan(counts)] = 0\n    counts += target.zero\n",
        "    counts += target.zero\n    counts[np.isnan(counts)] = 0\n",
    ),
    (79, AREA, "ptensor/recount.py"): (
        "A reshape shares memory in which the parts of a new dim are in another order than blocks.",
        "        if inner != sorted(inner, reverse=True):\n"
        '            raise LayoutError(f"parts of {dim} are in an order that no blocks have")\n',
        "",
    ),
    (80, AREA, "ptensor/parts.py"): (
        "A part that ends inside a block is taken in place: its pads are other elements.",
        "if begin % block or (end % block and end != self.extents[dim]):",
        "if begin % block:",
    ),
    (81, AREA, "ptensor/buffer.py"): (
        "A part of a part of a memory begins where the outer part begins.",
        "            begin += storage._begin\n",
        "            begin = storage._begin\n",
    ),
    (82, AREA, "ptensor/rows.py"): (
        "Operands that a call reduces do not keep their layout: it is not among those tried.",
        "dim in view.dims and size in (1, view.dims[dim]) for dim",
        "dim in view.dims and size == view.dims[dim] for dim",
    ),
}
