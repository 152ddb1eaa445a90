"""Write ``ops/__init__.pyi`` and ``ops/index.txt``: the operators of ``ops`` and their files.

``python -m eval.documents.operator_stub``. The stub is for type checkers; with the index a network
imports only the files of its operators.
"""

from __future__ import annotations

import sys
from pathlib import Path

from libdesc.registry import registry
from vtensor.language.operators import OPERATORS

FILE = Path(__file__).parents[2] / "ops" / "__init__.pyi"
INDEX = FILE.with_name("index.txt")

_HEAD = """\
# Made by `python -m eval.documents.operator_stub` from what is registered; a test compares the two.
"""

_INDEX_HEAD = """\
# Made by `python -m eval.documents.operator_stub` from what is registered; a test compares the two.
# A line an operator: file, name, structural kind if it has one: the operators of ONNX read as it.
# A line a rule: file, name, what it makes: for each choice of its pattern the operators in it.
"""


def module_of(name: str) -> str:
    """Return the name of a module of ``ops`` from which an operator can be imported; "" if none.

    Of several, it is the module that defines the operator's class, if that is among them.
    """
    cls = OPERATORS[name].cls
    modules = sorted(
        (module != cls.__module__, "._" in module, module)
        for module, value in list(sys.modules.items())
        if module.startswith("ops.") and vars(value).get(name) is cls
    )
    return modules[0][-1] if modules else ""


def stub() -> str:
    """Return the text of the stub: an import of each operator of ``ops``, in the order of names."""
    registry()
    rows = ((module_of(name), name) for name in sorted(OPERATORS))
    return _HEAD + "".join(f"from {file} import {name} as {name}\n" for file, name in rows if file)


def index() -> str:
    """Return the text of ``ops/index.txt``: a line for each operator, then for each rewrite rule.

    Operators are in the order of their files and of their lines in them.
    """
    known = registry()
    infos = [info for info in OPERATORS.values() if info.cls.__module__.startswith("ops.")]
    lines = [_INDEX_HEAD]
    for info in sorted(infos, key=lambda info: (info.cls.__module__, info.line, info.name)):
        words = (info.cls.__module__.removeprefix("ops."), info.name, info.structural)
        op_types = dict.fromkeys(spelling.op_type for spelling in info.read_as)
        lines.append(f"{' '.join(filter(None, words))}: {' '.join(op_types)}".rstrip() + "\n")
    rules = [rule for rule in known.rules.values() if rule.module.startswith("ops.")]
    for rule in sorted(rules, key=lambda rule: rule.module):
        needs = " ".join("+".join(sorted(names)) for names in rule.needs)
        makes = "+".join(sorted(rule.made))
        lines.append(f"rule {rule.module.removeprefix('ops.')} {rule.name} {makes}: {needs}\n")
    return "".join(lines)


if __name__ == "__main__":
    FILE.write_text(stub())
    INDEX.write_text(index())
