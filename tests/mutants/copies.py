"""A copy of the repository in which faults and probes are seeded, and runs of tests in it.

A run sees the copy in the repository's own place (a mount that no other process sees): so the
editable installation and its native modules serve it. The checkout is only read.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutants.faults import Fault

ROOT = Path(__file__).parents[2]

#: Mounts a copy ($1) in the place of the repository ($2), keeps the environment, runs the rest.
_MOUNT = """
if test -d "$2/.venv"; then mkdir -p "$1/.venv" && mount --bind "$2/.venv" "$1/.venv"; fi &&
mount --rbind "$1" "$2" && cd "$2" && shift 2 && exec nice -n 10 "$@"
"""

#: The module that probes call: it logs which test comes by, also in a process that a test starts.
_PROBE = """
import os
seen = set()
def hit(number):
    test, log = os.environ.get("PYTEST_CURRENT_TEST"), os.environ.get("MUTANTS_LOG")
    if test and log and (number, test) not in seen:
        seen.add((number, test))
        with open(log, "a") as file:
            file.write(f"hit\\t{number}\\t{test}\\n")
"""


class Copy:
    """A copy of the repository in ``folder``, which is empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(
            listing, cwd=ROOT, check=True, capture_output=True, timeout=60
        ).stdout
        for name in filter(None, names.decode().split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # removed, and not committed yet
                shutil.copy2(ROOT / name, folder / name)

    @contextmanager
    def seeded(self, fault: Fault) -> Iterator[None]:
        """Seed a fault inside the block.

        Raises:
            ValueError: the text of the fault does not occur exactly once.
        """
        file, text = self._folder / fault.file, (ROOT / fault.file).read_text()
        if (count := text.count(fault.old)) != 1:
            raise ValueError(
                f"fault {fault.number}: its text occurs {count} times in {fault.file}\n  to fix: "
                "seed the same fault in the present code, in tests/mutants/faults.py"
            )
        file.write_text(text.replace(fault.old, fault.new))
        try:
            yield
        finally:
            shutil.copy2(ROOT / fault.file, file)  # its time, too: no .pyc of the fault is taken

    def probe(self, faults: Sequence[Fault]) -> None:
        """Put a probe before the statement of each fault, for good."""
        for name in {fault.file for fault in faults}:
            here = [fault for fault in faults if fault.file == name]
            text = probed((ROOT / name).read_text(), here)
            (self._folder / name).write_text(text)
        (self._folder / "vtensor/_probe.py").write_text(_PROBE)

    def run(
        self, arguments: Sequence[str], variables: dict[str, str], seconds: float | None = None
    ) -> int | None:
        """Run pytest in the copy and return its exit status; None if the time was over."""
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        mount = ["unshare", "--mount", "--propagation", "private", *root, "sh", "-c", _MOUNT, "sh"]
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutants.plugin"]
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen(
            [*mount, str(self._folder), str(ROOT), *pytest, "-p", "no:cacheprovider", *arguments],
            env=kept | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what tests have left
            process.wait()


def probed(text: str, faults: Sequence[Fault]) -> str:
    """Return a module with a probe before the innermost statement that holds each fault.

    >>> fault = Fault(7, "", "", "", "b +", "b -")
    >>> print(probed("def f(a, b):\\n    if a:\\n        return b + 1\\n", [fault]))
    from vtensor._probe import hit as _hit
    def f(a, b):
        if a:
            _hit(7)
            return b + 1
    """
    lines, rows = text.splitlines(), list[tuple[int, int]]()
    for fault in faults:
        begin = text.index(fault.old) + len(fault.old) - len(fault.old.lstrip())
        line = text.count("\n", 0, begin) + 1
        around = [
            node.lineno
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        ]
        rows.append((max(at for at in around if "elif" not in lines[at - 1]), fault.number))
    for line, number in sorted(rows, reverse=True):
        indent = len(lines[line - 1]) - len(lines[line - 1].lstrip())
        lines.insert(line - 1, f"{' ' * indent}_hit({number})")
    future = [at for at, line in enumerate(lines, 1) if line.startswith("from __future__")]
    lines.insert(max(future, default=0), "from vtensor._probe import hit as _hit")
    return "\n".join(lines)
