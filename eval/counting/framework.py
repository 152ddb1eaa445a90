"""Lines of code of the framework itself, by folder, next to the paper's numbers."""

from __future__ import annotations

from typing import Any

from eval.counting.source import cpp_lines, python_lines
from eval.counting.units import ROOT
from eval.figures.paper import paper

#: By folder or file: the paper's counterpart in words, and the keys of its count in ``paper.toml``.
COUNTERPARTS = {
    "resolver": ("partial evaluator and runtime layouts", ("framework", "partial_evaluator")),
    "resolver/extend.py": ("insertion of conversions, among them", ("framework", "insertion")),
    "optimizer": ("the integer program", ("framework", "integer_program")),
    "ptensor": ("the classes VTensor and PTensor", ("framework", "tensors")),
    "ops": ("16 operators; here all of them", ("framework", "operators")),
    "libdesc": ("library descriptions and dispatch: not counted apart", ()),
    "vtensor": ("TensorFlow's own: graph, executor, ONNX in place of its formats", ()),
    "native": ("TensorFlow's own: kernels and executor", ()),
}

CONTRADICTION = (
    "The paper contradicts itself here: section 5.3 has approximately"
    f" {paper('framework', 'operators'):,} lines for the 16 operators, section 7.2"
    f" {paper('framework', 'again', 'operators'):,}. With 7.2's own figures"
    f" ({paper('framework', 'again', 'operators'):,} + {paper('framework', 'again', 'runtime'):,} +"
    f" {paper('framework', 'again', 'tensors'):,}) the sum is"
    f" {sum(paper('framework', 'again', k) for k in ('operators', 'runtime', 'tensors')):,}; its"
    f" total of approximately {paper('framework', 'again', 'total'):,} needs 5.3's. The runtime's"
    " 3,700 are 5.3's 1,500 + 2,000 + 200. The paper builds on TensorFlow and counts what it adds;"
    " this repository has nothing beneath it, so that only the first five rows compare."
)


def folders() -> list[dict[str, Any]]:
    """Return a row for each key of ``COUNTERPARTS``: its lines of code in Python and C++, the
    paper's counterpart, and the paper's count, which is None if it has none.
    """
    rows = []
    for folder, (counterpart, keys) in COUNTERPARTS.items():
        place = ROOT / folder
        files = [place] if place.is_file() else sorted(place.rglob("*.*"))
        python = sum(len(python_lines(f.read_text())) for f in files if f.suffix == ".py")
        cpp = sum(len(cpp_lines(f.read_text())) for f in files if f.suffix in (".cpp", ".h"))
        said = paper(*keys) if keys else None
        row = {"folder": folder, "python": python, "cpp": cpp}
        rows.append({**row, "counterpart": counterpart, "paper": said})
    return rows
