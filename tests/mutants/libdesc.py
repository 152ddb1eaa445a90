"""Faults 53 to 61: dispatchers, preferences, descriptions and the libraries' own routines."""

from __future__ import annotations

AREA = "libdesc"

ROWS = {
    (53, AREA, "libdesc/dispatcher.py"): (
        "The element types that an invoker takes for a repeated operand are not checked.",
        'dtypes.get(role, dtypes.get(role.rstrip("0123456789"), dtypes.get("")))',
        'dtypes.get(role, dtypes.get(""))',
    ),
    (54, AREA, "libdesc/preferences.py"): (
        "The pin of an operator overrides the pin of one of its nodes.",
        "return self.nodes.get(node, self.operators.get(op))",
        "return self.operators.get(op, self.nodes.get(node))",
    ),
    (55, AREA, "libdesc/transforms.py"): (
        "A library that the session excludes runs Transforms.",
        "if x.device not in library.devices or not preferences.allows(name):",
        "if x.device not in library.devices:",
    ),
    (56, AREA, "libdesc/onednn/handlers.py"): (
        "oneDNN takes a Transform between blocks that do not divide one another.",
        "    if any(above % below for below, above in pairwise(marks)):\n"
        '        raise LayoutNotSupported(f"the blocks of {row[0]} and {row[1]} share no parts of '
        '{dim}")\n',
        "",
    ),
    (57, AREA, "libdesc/onednn/routines_shape.py"): (
        "A slice on oneDNN begins at the first element, wherever it should begin.",
        "if not src.inner_blocks and not any(starts):",
        "if not src.inner_blocks:",
    ),
    (58, AREA, "libdesc/winograd/routine.py"): (
        "If two biases follow a Winograd convolution, the second takes the place of the first.",
        "if name not in self.added and dict(tensor.dims) == dims:",
        "if dict(tensor.dims) == dims:",
    ),
    (59, AREA, "libdesc/eigen/elementwise.py"): (
        "An integer that overflows between two fused operators keeps its upper bits.",
        'return value.to(dtype) if dtype[0] in "su" else value',
        "return value",
    ),
    (60, AREA, "libdesc/numpy/casts.py"): (
        "A cast to f8e8m0 rounds a number in the middle between two powers down.",
        '"nearest": fraction >= 0.75}',
        '"nearest": fraction > 0.75}',
    ),
    (61, AREA, "libdesc/load.py"): (
        "A description's module may be a link that leads out of its folder.",
        "    if not file.is_relative_to(folder):\n"
        "        raise DescriptionError(\n"
        '            f"{description}: {name} leads out of the description\'s folder, to {file}"\n'
        "        )\n",
        "",
    ),
}
