"""Faults 31 to 40: Algorithm 1, Transforms, saved choices and the independent check."""

from __future__ import annotations

AREA = "resolver"

ROWS = {
    (31, AREA, "resolver/check.py"): (
        "The check accepts a fused node although another node reads the value before it.",
        "        or [*readers.get(values[0], ())] != [follower.name]\n",
        "",
    ),
    (32, AREA, "resolver/evaluate.py"): (
        "A library goes before one of higher priority that it may not precede, if that one takes "
        "only a follower.",
        "if not set().union(*passed) <= {*row.before}:",
        "if not passed[0] <= {*row.before}:",
    ),
    (33, AREA, "resolver/evaluate.py"): (
        "A follower that no library runs by itself is not fused if an earlier library might have "
        "taken it: no plan is found.",
        "return offered[: place + 1]",
        "return offered[:place]",
    ),
    (34, AREA, "resolver/evaluate.py"): (
        "A constant that a node reads twice is no constant at its second use.",
        "            if value.storage is not None:\n                twin.storage = value.storage\n",
        "",
    ),
    (35, AREA, "resolver/extend.py"): (
        "A Transform runs on the library of an equal Transform before it, not on the library of "
        "its own consumer.",
        "tensor.device, change, preferred)",
        "tensor.device, change)",
    ),
    (36, AREA, "resolver/addresses.py"): (
        "The check reads several blocks of a dim in the wrong order, the innermost first.",
        "for count, block_step in reversed(inner):",
        "for count, block_step in inner:",
    ),
    (37, AREA, "resolver/exactness.py"): (
        "The check moves the range of an integer type by its zero point in the wrong direction.",
        "return low + zero >= least and high + zero <= most",
        "return low - zero >= least and high - zero <= most",
    ),
    (38, AREA, "resolver/check_errors.py"): (
        "The check of a plan's errors leaves out the error of exact kernels.",
        "or squares + direct > Fraction",
        "or squares > Fraction",
    ),
    (39, AREA, "resolver/choice_data.py"): (
        "A saved choice with a negative index is taken: rows are counted from the end.",
        '    if number < 0:\n        raise ChoiceRefused(f"{number} is less than 0")\n',
        "",
    ),
    (40, AREA, "resolver/lock_choice.py"): (
        "The third Transform of a value to one layout has the name of the second in a lock file.",
        "while name in taken:",
        "if name in taken:",
    ),
}
