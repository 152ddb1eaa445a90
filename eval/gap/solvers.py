"""The solvers by name, in the order in which tables list them.

A solver is a function (problem, measure) that returns a solution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eval.gap.problem import Measure, Problem
from eval.gap.program import elementwise_program, joint_program
from eval.gap.rules import channels_last, hoisted, one_layout, producer_wins, push_transposes
from eval.gap.score import Solution
from eval.gap.search import beam, tree_programming

Solver = Callable[[Problem, Measure], Solution]

#: The widths of the beam.
WIDTHS = (1, 4, 16, 64)

SOLVERS: dict[str, Solver] = {
    "producer wins": producer_wins,
    "LHO": hoisted,
    "EWO": elementwise_program,
    "push transposes": push_transposes,
    "one layout": one_layout,
    "channels last": channels_last,
    **{f"beam {width}": partial(beam, width=width) for width in WIDTHS},
    "tree DP": tree_programming,
    "joint ILP": joint_program,
}
