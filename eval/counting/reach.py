"""The units of code that an operator reaches, by the names that its class and its invokers use.

A unit is a top-level statement or definition of a file (``eval/counting/units.py``). The registry
says where the class and the invokers are defined. From there every name is followed into ``ops/``,
the folders of the libraries, and through a library's Python binding into ``native/``. All other
code is the framework's and counts for no operator.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from eval.counting.source import toml_lines
from eval.counting.units import BOUND, ROOT, Unit, cpp_units, python_units
from libdesc.registry import registry
from vtensor.language.operators import OPERATORS
from vtensor.language.table import OperatorInfo

#: The operators of the paper's evaluation.
SIXTEEN = (
    *("Conv2D", "DepthwiseConv2D", "MatMul", "BiasAdd", "BatchNorm", "Relu", "Relu6", "MaxPool"),
    *("AvgPool", "Concat", "Add", "Mul", "Softmax", "LRN", "Pad", "Mean"),
)
#: The libraries whose code is counted. A unit that the invokers of several libraries reach is
#: counted for the first of them.
LIBRARIES = ("onednn", "eigen", "numpy")
#: Names that code uses to read and write ONNX; the layout-aware baseline has no such code.
ONNX = frozenset(("NodeReader", "NodeWriter", "Naming", "Spelling"))
#: A unit that at least so many operators reach has the tier ``generic``; with fewer, but more than
#: one, it has the tier ``family``.
GENERIC_FROM = 8
#: By library: the prefixes with which Python code calls functions of its extension module.
_MODULES = {"onednn": ("dnnl.",), "eigen": ("native.load().", "load().")}


def zone(path: str) -> str:
    """Return the part of the repository to which a file belongs, or "" if its code is not counted.

    It is ``ops`` for a file of operators, also of the baseline's, and the library's name for a file
    of a library.

    Args:
        path: the file, relative to the root of the repository.
    """
    folders = path.split("/")
    if folders[0] == "ops" or folders[:2] == ["eval", "layout_aware"]:
        return "ops"
    known = folders[0] in ("libdesc", "native") and len(folders) > 2 and folders[1] in LIBRARIES
    return folders[1] if known else ""


def tiers() -> Mapping[Unit, str]:
    """Return the tier of each unit that at least one operator reaches.

    The tier is ``own`` if one operator reaches the unit, ``family`` if fewer than ``GENERIC_FROM``
    operators do, else ``generic``.
    """
    return _tiers(Counter(unit for name in _known() for unit in reached(name)))


def _tiers(counts: Mapping[Unit, int]) -> Mapping[Unit, str]:
    return {
        unit: "own" if count == 1 else "family" if count < GENERIC_FROM else "generic"
        for unit, count in counts.items()
    }


@cache
def reached(name: str) -> Mapping[Unit, str]:
    """Return the units that an operator reaches, each with a part: ``operation`` or a library.

    The part says what the unit is counted for. A unit outside ``ops/`` is counted for its library.
    A unit of ``ops/`` is counted for ``operation`` if the operator's class reaches it, else for the
    first library whose invokers reach it.
    """
    info, parts = _known()[name], dict[Unit, str]()
    roots = {"operation": set(_standing(info.file, info.line))}
    for library in LIBRARIES:
        for (op, on, _), invoker in registry().invokers.items():
            if (op, on) == (name, library):
                roots.setdefault(library, set()).update(_standing(invoker.file, invoker.line))
        roots.setdefault(library, set()).update(_registering(info, library))
    for part, units in roots.items():
        for unit in closed(units, barred=_classes() - _bases(info)):
            parts.setdefault(unit, zone(unit.path) if zone(unit.path) != "ops" else part)
    return parts


@cache
def baseline(name: str) -> frozenset[Unit]:
    """Return all Python units that an operator of the baseline, ``eval/layout_aware``, reaches.

    ``name`` is the operator's name.
    """
    folder = ROOT / "eval" / "layout_aware"
    units = set[Unit]()
    for file in sorted(folder.glob("*.py")):
        units.update(u for u in python_units(str(file.relative_to(ROOT))) if _is_of(u, name))
    return frozenset(unit for unit in closed(units) if unit.path.endswith(".py"))


def baseline_tiers() -> Mapping[Unit, str]:
    """Return the tier (see ``tiers``) of each unit that an operator of the baseline reaches."""
    return _tiers(Counter(unit for name in SIXTEEN for unit in baseline(name)))


def _is_of(unit: Unit, name: str) -> bool:
    """Return whether a unit defines ``name``, or has it as a text in one of its decorators.

    An import does not define the names that it imports.
    """
    if name in unit.names:
        return not unit.target
    decorators = getattr(unit.node, "decorator_list", [])
    nodes = (part for decorator in decorators for part in ast.walk(decorator))
    return any(isinstance(part, ast.Constant) and part.value == name for part in nodes)


def described() -> int:
    """Return the number of lines of the libraries' descriptions, with the functions named there.

    The descriptions are TOML files. The functions are in the libraries' ``handlers.py``; the Python
    code that they reach is counted, too.
    """
    total = 0
    for library in LIBRARIES:
        text = (ROOT / "libdesc" / library / f"{library}.toml").read_text()
        total += len(toml_lines(text))
        handlers = python_units(f"libdesc/{library}/handlers.py")
        named = [unit for unit in handlers if any(name in text for name in unit.names)]
        total += sum(len(unit.lines) for unit in closed(named) if unit.path.endswith(".py"))
    return total


def spells(unit: Unit) -> bool:
    """Return whether a unit is code for reading or writing ONNX.

    It is if it uses one of the names in ``ONNX`` and is neither a class nor an import.
    """
    return not isinstance(unit.node, ast.ClassDef) and not unit.target and bool(unit.uses & ONNX)


def closed(units: Iterable[Unit], barred: frozenset[Unit] = frozenset()) -> set[Unit]:
    """Return ``units`` and all units that they use, directly or through other units.

    Args:
        units: the units to begin with.
        barred: units that are left out of the result unless they are in ``units``.
    """
    done, todo = set[Unit](), list(units)
    while todo:
        unit = todo.pop()
        if unit in done:
            continue
        done.add(unit)
        todo += [used for used in _followed(unit) if used not in barred and used not in done]
    return done


@cache
def _followed(unit: Unit) -> frozenset[Unit]:
    """Return the units that a unit uses directly.

    For a unit in C++ they include the one with its file's preprocessor lines.
    """
    if unit.path.endswith((".py", ".pyi")):
        units = [used for name in unit.uses for used in _resolved(unit.path, name)]
        return frozenset(units) | frozenset(_bound(unit))
    natives = (used for name in unit.uses for used in _native(zone(unit.path), name))
    return frozenset((*natives, cpp_units(unit.path)[-1]))


def _bound(unit: Unit) -> Iterator[Unit]:
    """Yield the C++ bindings that a Python unit calls in the extension module of its library."""
    library = zone(unit.path)
    for name in unit.uses:
        for prefix in _MODULES.get(library, ()):
            if name.startswith(prefix):
                yield from _native(library, BOUND + name.removeprefix(prefix))


def _resolved(path: str, dotted: str) -> Iterator[Unit]:
    """Yield the units that define a name used in a file, and the units that import it there.

    Args:
        path: the file, relative to the root of the repository.
        dotted: the name as it is used, with attributes: ``eigen.pad``.
    """
    if not zone(path):
        return
    name, _, rest = dotted.partition(".")
    for unit in python_units(path):
        if name not in unit.names:
            continue
        targets = [target for target in unit.target if target[0] == name]
        if not targets or zone(path):
            yield unit
        for _, module, inner in targets:
            yield from _imported(module, inner, rest)


def _imported(module: str, inner: str, rest: str) -> Iterator[Unit]:
    """Yield the units that define an imported name, or an attribute of an imported module.

    As in Python, a name that a package's ``__init__`` defines hides a module of the same name.

    Args:
        module: the module that is imported, or from which a name is imported.
        inner: the name after ``from module import``; empty for ``import module``.
        rest: the attribute that is used, the part after the first dot; empty if there is none.
    """
    if inner and (path := _file(module)) is not None and _makes(path, inner):
        yield from _resolved(path, inner)
        return
    within = f"{module}.{inner}" if inner else module
    if rest and _file(within) is not None:
        name, _, more = rest.partition(".")
        yield from _imported(within, name, more)


def _makes(path: str, name: str) -> bool:
    return bool(zone(path)) and any(name in unit.names for unit in python_units(path))


@cache
def _file(module: str) -> str | None:
    path = module.replace(".", "/")
    places = (f"{path}.py", f"{path}/__init__.pyi", f"{path}/__init__.py")
    existing = [place for place in places if (ROOT / place).is_file()]
    return existing[0] if existing else None


def _native(library: str, name: str) -> Iterable[Unit]:
    return _index(library).get(name, ())


@cache
def _index(library: str) -> Mapping[str, list[Unit]]:
    """Return, by name, the units of a library's C++ files that define the name."""
    units = dict[str, list[Unit]]()
    for file in sorted((ROOT / "native" / library).glob("*.[ch]*")):
        for unit in cpp_units(str(file.relative_to(ROOT))):
            for name in unit.names:
                units.setdefault(name, []).append(unit)
    return units


@cache
def _known() -> Mapping[str, OperatorInfo]:
    """Return all operators that ``ops/`` defines, by name."""
    registry()
    return {
        name: info for name, info in OPERATORS.items() if ROOT / "ops" in Path(info.file).parents
    }


@cache
def _classes() -> frozenset[Unit]:
    """Return the units that define the classes of all operators."""
    return frozenset(u for info in _known().values() for u in _standing(info.file, info.line))


def _bases(info: OperatorInfo) -> frozenset[Unit]:
    """Return the units that define an operator's class and its base classes that are operators."""
    known = {operator.cls: operator for operator in _known().values()}
    rests = [known[cls] for cls in info.cls.__mro__ if cls in known]
    return frozenset(unit for operator in rests for unit in _standing(operator.file, operator.line))


@cache
def _standing(file: str, line: int) -> frozenset[Unit]:
    """Return the set of the one unit that contains a line of a file.

    It is empty if the file's code is not counted (``zone``). Lines are numbered from 1.
    """
    path = Path(file)
    if ROOT not in path.parents or not zone(str(path.relative_to(ROOT))):
        return frozenset()
    units = python_units(str(path.relative_to(ROOT)))
    return frozenset({max((u for u in units if u.first <= line), key=lambda u: u.first)})


def _registering(info: OperatorInfo, library: str) -> Iterator[Unit]:
    """Yield the top-level loops and expressions of an operator's file that register invokers.

    They are those that contain the names of the operator and of the library as texts.
    """
    path = str(Path(info.file).relative_to(ROOT))
    for unit in python_units(path):
        if isinstance(unit.node, ast.For | ast.Expr):
            words = {n.value for n in ast.walk(unit.node) if isinstance(n, ast.Constant)}
            if {info.name, library} <= words:
                yield unit
