"""The functions and invokers that a module's source defines; the source is parsed and never run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from libdesc.load import sibling_file
from vtensor.errors import DescriptionError
from vtensor.language.records import dataclass
from vtensor.language.tensor import CPU
from vtensor.language.user_files import read_plain_file
from vtensor.storage.open_file import State

#: The most ``from ... import`` lines that are followed to a function's definition.
MAX_HOPS = 8


@dataclass(frozen=True)
class Defined:
    """A name that a module's source defines.

    Attributes:
        place: file and line of the definition.
        arguments: the parameters; None if it is no plain function.
        doubt: why the source leaves open what the function is; empty if it does not.
        fault: why the name cannot be called; empty if the source shows no reason.
    """

    place: str
    arguments: ast.arguments | None = None
    doubt: str = ""
    fault: str = ""

    @property
    def signature(self) -> str:
        """The parameters as text; ``(...)`` if they are not known."""
        try:
            return f"({ast.unparse(self.arguments) if self.arguments else '...'})"
        except RecursionError:
            return "(...)"

    def takes(self, count: int) -> bool:
        """Return whether the function can be called with ``count`` positional arguments; True if
        unknown.
        """
        arguments = self.arguments
        if arguments is None:
            return True
        named = len(arguments.posonlyargs) + len(arguments.args)
        most = sys.maxsize if arguments.vararg else named
        required = named - len(arguments.defaults)
        return required <= count <= most and None not in arguments.kw_defaults


@dataclass(frozen=True)
class InvokerLine:
    """A call ``invoker(...)`` in a module's source, which registers an invoker.

    Attributes:
        place: file and line.
        op, library, device: the arguments of these names; None if the source does not show the
            value.
        dtypes: all element types in its argument ``dtypes``.
        function: the decorated function; None if it is not known.
    """

    place: str
    op: str | None
    library: str | None
    device: str | None
    dtypes: tuple[str, ...] = ()
    function: Defined | None = None


def module_file(name: str, description: Path) -> Path | None:
    """Return the Python file of a module, without importing it; None if the module is compiled.

    Args:
        name: the module's name; one that begins with a dot is a file next to the description.
        description: the file that names the module.

    Raises:
        DescriptionError: there is no such module.
    """
    if name.startswith("."):
        return sibling_file(name, description)
    spec = _spec(name)
    if spec is None:
        raise DescriptionError(f"{description}: there is no module {name!r} where Python looks")
    origin = Path(spec.origin or "")
    return origin if origin.suffix == ".py" and origin.is_file() else None


def _spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module; None if there is none.

    Unlike ``importlib.util.find_spec``, this does not import the packages around the module.
    """
    path: list[str] | None = None
    spec = None
    whole = ""
    for part in name.split("."):
        if whole and path is None:
            return None
        whole = f"{whole}.{part}" if whole else part
        answers = (finder.find_spec(whole, path) for finder in sys.meta_path)
        spec = next((answer for answer in answers if answer is not None), None)
        if spec is None:
            return None
        inside = spec.submodule_search_locations
        path = None if inside is None else list(inside)
    return spec


@cache
def _parsed(file: Path, state: State) -> ast.Module:  # noqa: ARG001  # ``state`` is only a key
    try:
        return ast.parse(read_plain_file(file), str(file))
    except (RecursionError, MemoryError):
        raise SyntaxError(f"{file} is nested too deeply to be parsed") from None


def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a module's source.

    Raises:
        SyntaxError, ValueError, OSError: the source cannot be parsed or read.
    """
    return _parsed(file, State.of(file.stat()))


def find_function(
    file: Path, function: str, module: str = "", hops: int = MAX_HOPS
) -> Defined | None:
    """Return the definition of a function in a module's source; None if there is none.

    Args:
        file: the module's file.
        function: the function's name.
        module: the module's dotted name, to which its relative imports are relative.
        hops: the most ``from ... import`` lines to follow.

    Raises:
        SyntaxError, ValueError, OSError: the source cannot be parsed or read.
    """
    definition, doubt = None, ""
    for line in _statements(parsed(file).body):
        if isinstance(line, ast.ImportFrom):
            names = {alias.asname or alias.name: alias.name for alias in line.names}
            if "*" in names:
                doubt = f"{file}:{line.lineno} imports everything that there is elsewhere"
            elif function in names:
                definition = _imported(file, line, names[function], module, hops)
        elif function in _defined(line):
            definition = _definition(file, line)
        elif "__getattr__" in _defined(line):
            doubt = f"{file}:{line.lineno} makes names as they are asked for"
    return definition or (Defined(str(file), doubt=doubt) if doubt else None)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's top-level statements, including those in ``if``, ``try`` and loops."""
    for line in body:
        yield line
        if isinstance(line, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            blocks = [line.body, getattr(line, "orelse", []), getattr(line, "finalbody", [])]
            blocks += [handler.body for handler in getattr(line, "handlers", [])]
            for block in blocks:
                yield from _statements(block)


def _defined(line: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(line, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {line.name}
    if isinstance(line, ast.Import):
        return {alias.asname or alias.name for alias in line.names}
    if isinstance(line, ast.AnnAssign) and line.value is None:
        return set()
    targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _definition(file: Path, line: ast.stmt) -> Defined:
    place = f"{file}:{line.lineno}"
    if isinstance(line, ast.AsyncFunctionDef):
        return Defined(place, fault="is an async function, which is not awaited")
    if isinstance(line, ast.FunctionDef):
        if line.decorator_list:
            return Defined(place, doubt=f"{place} is decorated")
        return Defined(place, line.args)
    if isinstance(line, ast.Import):
        return Defined(place, fault="is a module, no function")
    value = getattr(line, "value", None)
    if isinstance(value, ast.Lambda):
        return Defined(place, value.args)
    if isinstance(value, (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.JoinedStr)):
        return Defined(place, fault="is no function")
    return Defined(place, doubt=f"{place} makes it as it runs")


def _imported(file: Path, line: ast.ImportFrom, name: str, module: str, hops: int) -> Defined:
    """Return the definition of a name that a module gets by ``from ... import``.

    Args:
        file: the file of the import.
        line: the import.
        name: the name that the imported module has for it.
        module: the dotted name of the importing module.
        hops: the most further imports to follow.
    """
    place = f"{file}:{line.lineno}"
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for _ in range(line.level - 1):
        package = package.rpartition(".")[0]
    target = ".".join(filter(None, [package if line.level else "", line.module or ""]))
    doubt = Defined(place, doubt=f"{place} imports it from elsewhere")
    if not hops or (line.level and not package):
        return doubt
    try:
        source = module_file(target, file)
        return (source and find_function(source, name, target, hops - 1)) or doubt
    except (DescriptionError, SyntaxError, ValueError, OSError, RecursionError):
        return doubt


def invoker_lines(file: Path) -> list[InvokerLine]:
    """Return every ``invoker(...)`` in a module's source.

    Raises:
        SyntaxError, ValueError, OSError: the source cannot be parsed or read.
    """
    tree = parsed(file)
    texts: dict[str, Any] = {}
    names = {"invoker"}
    for line in _statements(tree.body):
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
            texts.update(dict.fromkeys(_defined(line), line.value.value))
        if isinstance(line, ast.ImportFrom):
            names |= {a.asname or a.name for a in line.names if a.name == "invoker"}
    decorated = {
        id(line.decorator_list[0]): Defined(f"{file}:{line.lineno}", line.args)
        for line in ast.walk(tree)
        if isinstance(line, ast.FunctionDef) and len(line.decorator_list) == 1
    }
    return [
        _invoker_line(file, node, texts, decorated.get(id(node)))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", ""))
        in names
    ]


def _invoker_line(
    file: Path, node: ast.Call, texts: dict[str, Any], function: Defined | None
) -> InvokerLine:
    arguments = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    named = node.args[0] if node.args else arguments.get("op")
    device = _text(arguments["device"], texts) if "device" in arguments else CPU
    place = f"{file}:{node.lineno}"
    op, library = _text(named, texts), _text(arguments.get("library"), texts)
    return InvokerLine(place, op, library, device, _dtypes(arguments.get("dtypes")), function)


def _text(node: ast.expr | None, texts: dict[str, Any]) -> str | None:
    value = texts.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    return value if isinstance(value, str) else None


def _dtypes(node: ast.expr | None) -> tuple[str, ...]:
    """Return the element types in an argument ``dtypes``: its string constants, without keys.

    Empty if ``node`` is None.
    """
    return tuple(
        constant.value
        for part in ([] if node is None else _values(node))
        for constant in ast.walk(part)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    )


def _values(node: ast.expr) -> list[ast.expr]:
    return node.values if isinstance(node, ast.Dict) else [node]
