"""A copy of the repository in which faults and probes are seeded, and runs of tests in it.

A run sees the copy in the place that the environment is installed from (a mount that no other
process sees): so the editable installation and its native modules serve it. The checkout is only
read. For a fault in C++, its module is built in a copy of the build folder, and mounted too.
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

#: The repository that the environment is installed from: another one than ROOT in a worktree.
PLACE = Path(sys.prefix).parent if (Path(sys.prefix).parent / "native").is_dir() else ROOT

#: Mounts a copy ($1) in PLACE ($2), keeps the environment, mounts a module ($3) over the installed
#: one ($4) unless both are empty, and runs the rest.
_MOUNT = """
if test -d "$2/.venv"; then mkdir -p "$1/.venv" && mount --bind "$2/.venv" "$1/.venv"; fi &&
mount --rbind "$1" "$2" && if test -n "$3"; then mount --bind "$3" "$4"; fi &&
cd "$2" && shift 4 && exec nice -n 10 "$@"
"""

#: The time of files in the copy, in seconds: the year 2000.
OLD = 946_684_800

#: The instruction sets of kernels, the best first, each with a flag of processors that have it.
_LEVELS = {"avx512": "avx512vl", "avx2": "avx2", "baseline": ""}

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
        self._module = ("", "")  # the one that a fault is in, and the installed one
        listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(
            listing, cwd=ROOT, check=True, capture_output=True, timeout=60
        ).stdout
        for name in filter(None, names.decode().split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # removed, and not committed yet
                self._restore(name)

    def _restore(self, name: str) -> None:
        """Copy a file. It is old: ninja builds nothing for it, Python takes no .pyc of a fault."""
        shutil.copyfile(ROOT / name, self._folder / name)
        shutil.copymode(ROOT / name, self._folder / name)
        os.utime(self._folder / name, (OLD, OLD))

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
                "seed the same fault in the present code, in a table of tests/mutants"
            )
        file.write_text(text.replace(fault.old, fault.new))
        try:
            if is_native(fault):
                self._build(fault)
            yield
        finally:
            self._module = ("", "")
            self._restore(fault.file)

    def _build(self, fault: Fault) -> None:
        """Build the module of a fault in C++, in the instruction set that this machine uses.

        Raises:
            CalledProcessError: the fault does not compile.
        """
        flags = Path("/proc/cpuinfo").read_text().split()
        level = next(name for name, flag in _LEVELS.items() if not flag or flag in flags)
        library = Path(fault.file).parts[1]
        target = (
            f"_{library}_{level}" if library in ("eigen", "winograd", "narrow") else f"_{library}"
        )
        [installed] = Path(sys.prefix).rglob(f"{target}.*.so")
        [built] = (PLACE / "build").glob(f"*/{installed.name}")
        build = self._folder / "build"
        shutil.rmtree(build, ignore_errors=True)
        shutil.copytree(PLACE / "build", build, symlinks=True)
        ninja = [f"{sys.prefix}/bin/ninja", "-j1", "-C", str(built.parent), installed.name]
        subprocess.run(self._mounted(ninja), check=True, stdout=subprocess.DEVNULL, timeout=600)
        self._module = str(build / built.relative_to(PLACE / "build")), str(installed)

    def _mounted(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one where the copy is mounted."""
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        mount = ["unshare", "--mount", "--propagation", "private", *root, "sh", "-c", _MOUNT, "sh"]
        return [*mount, str(self._folder), str(PLACE), *self._module, *command]

    def probe(self, faults: Sequence[Fault]) -> None:
        """Put a probe before the statement of each fault, for good."""
        for name in {fault.file for fault in faults if not is_native(fault)}:
            here = [fault for fault in faults if fault.file == name]
            text = probed((ROOT / name).read_text(), here)
            (self._folder / name).write_text(text)
        (self._folder / "vtensor/_probe.py").write_text(_PROBE)

    def run(
        self, arguments: Sequence[str], variables: dict[str, str], seconds: float | None = None
    ) -> int | None:
        """Run pytest in the copy and return its exit status; None if the time was over."""
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutants.plugin"]
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen(
            self._mounted([*pytest, "-p", "no:cacheprovider", *arguments]),
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


def is_native(fault: Fault) -> bool:
    """Whether a fault is in C++: no probe shows which tests come by it."""
    return not fault.file.endswith(".py")


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
