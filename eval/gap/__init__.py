"""Layout problems as plain data, solvers of them, and how far each is from the optimum.

``problem.py`` reads and checks a file, ``score.py`` scores a solution, ``rules.py``, ``search.py``
and ``program.py`` have the solvers. ``docs/layout-problem.md`` describes the format.
"""
