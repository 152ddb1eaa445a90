"""``python -m tests.mutants``: seed each fault, and see which test fails (``README.md``)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.mutants.copies import ROOT, Copy, is_native
from tests.mutants.faults import FAULTS, Fault
from tests.mutants.plugin import LOG, ORDER

#: Beyond so many times the limit, a run is taken for one that hangs.
HUNG = 3

#: Folders of the tests that run for a fault in C++.
NATIVE = ("tests/native", "tests/operators", "tests/conformance", "tests/runtime")

MAP = Path.home() / ".cache" / "vtensor-mutants" / "map.json"


@dataclass
class Map:
    """What a run of tests has shown.

    Attributes:
        tests: seconds of each test, and its outcome: passed, failed, or crashed if it never ended.
        hits: by the number of a fault, the tests that come by it.
    """

    tests: dict[str, tuple[float, str]]
    hits: dict[str, list[str]]

    @classmethod
    def of_log(cls, log: Path) -> Map:
        """Read the log of a run."""
        tests, hits = dict[str, tuple[float, str]](), defaultdict[str, set[str]](set)
        shared = defaultdict[str, set[str]](set)
        for line in log.read_text().splitlines() if log.exists() else ():
            match line.split("\t"):
                case ["begin", name]:
                    tests[name] = 0.0, "crashed"
                case ["end", name, seconds, outcome]:
                    tests[name] = float(seconds), outcome
                case ["hit", number, told]:
                    name, _, phase = told.rpartition(" ")
                    hits[number].add(name)
                    if phase == "(setup)":  # of a fixture that other tests of the file may share
                        shared[number].add(file_of(name))
        for number, files in shared.items():
            hits[number] |= {name for name in tests if file_of(name) in files}
        return cls(tests, {number: sorted(names) for number, names in hits.items()})

    def renewed(self, newer: Map) -> Map:
        """This map, with a newer one's rows of the files that are in that."""
        files = {file_of(name) for name in newer.tests}
        tests = {name: row for name, row in self.tests.items() if file_of(name) not in files}
        hits = {
            number: [name for name in self.hits.get(number, ()) if file_of(name) not in files]
            for number in {*self.hits, *newer.hits}
        }
        more = {number: [*names, *newer.hits.get(number, ())] for number, names in hits.items()}
        return Map(tests | newer.tests, more)


@dataclass
class Result:
    """What became of a fault.

    Attributes:
        number, area, says: the fault.
        caught: a test failed, or ended the process.
        by: that test; else why there is none.
        covering, ran: how many tests come by the fault; how many of them ran.
        seconds: how long all of it took.
    """

    number: int
    area: str
    says: str
    caught: bool
    by: str
    covering: int
    ran: int
    seconds: float


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


@dataclass
class Judge:
    """Runs tests against faults.

    Attributes:
        copy: where faults are seeded.
        map: which tests cover them.
        within: files and folders whose tests run; if there are none, all tests of the map.
        without: files and folders whose tests do not run.
        limit: seconds for each fault, by the map, so that the load of the machine does not matter.
    """

    copy: Copy
    map: Map
    within: Sequence[str]
    without: Sequence[str]
    limit: float

    def result(self, fault: Fault) -> Result:
        """Seed a fault and run the tests that cover it until one fails."""
        begun, covering = monotonic(), self.map.hits.get(str(fault.number), [])
        if is_native(fault):
            covering = [name for name in self.map.tests if name.startswith(NATIVE)]
        caught, by, ran = False, "no test covers it", 0
        while (order := self._order(covering)) or self.within:
            with self.copy.seeded(fault):
                caught, by, ran = self._run(order)
            if not caught or "::" not in by or self._run_copy([by], {}) == 0:
                break
            self.map.tests[by] = 0.0, "unreliable"  # it fails without the fault, too
        about, seconds = (fault.number, fault.area, fault.says), round(monotonic() - begun, 1)
        return Result(*about, caught, by, len(covering), ran, seconds)

    def _order(self, covering: Sequence[str]) -> list[str]:
        """The quickest tests, as many as there is time for; those of a file one after the other,
        since they share fixtures. Where one test takes longer than all may, its file is left out:
        others may wait for the same fixture.
        """
        slow = {file_of(name) for name, (took, _) in self.map.tests.items() if took > self.limit}
        rows, files, total = list[tuple[float, str]](), dict[str, int](), 0.0
        for name in covering:
            took, outcome = self.map.tests.get(name, (0.0, ""))
            inside = not self.within or name.startswith((*self.within,))
            left_out = name.startswith((*self.without,)) or file_of(name) in slow
            if outcome == "passed" and inside and not left_out:
                rows.append((took, name))
        rows.sort()
        for place, (took, name) in enumerate(rows):
            total += took
            if total > self.limit:
                del rows[place:]
                break
            files.setdefault(file_of(name), len(files))
        return sorted((name for _, name in rows), key=lambda name: files[file_of(name)])

    def _run(self, order: Sequence[str]) -> tuple[bool, str, int]:
        """Whether a test fails, which one or why there is none, and how many ran."""
        paths = self.within or [*dict.fromkeys(map(file_of, order))]
        ignored = [f"--ignore={path}" for path in self.without]
        with TemporaryDirectory() as folder:
            log, file = Path(folder, "log"), Path(folder, "order.json")
            file.write_text(json.dumps({"order": order, "known": [*self.map.tests]}))
            variables = {LOG: str(log), ORDER: str(file)}
            status = self._run_copy(["-x", *ignored, *paths], variables)
            tests = Map.of_log(log).tests
        bad = {name: outcome for name, (_, outcome) in tests.items() if outcome != "passed"}
        failed = [name for name, outcome in bad.items() if outcome == "failed" or status]
        if failed:
            return True, failed[0], len(tests)
        if status is None:
            return False, f"the time was over in {[*bad] or 'the first test'}", len(tests)
        if status not in (0, 5):
            return True, f"pytest ends with {status}", len(tests)
        return False, "all pass", len(tests)

    def _run_copy(self, arguments: Sequence[str], variables: dict[str, str]) -> int | None:
        """Run pytest; a test that hangs fails after the limit."""
        arguments = [f"--timeout={self.limit:.0f}", *arguments]
        return self.copy.run(arguments, variables, HUNG * self.limit)


def table_of(results: Sequence[Result]) -> Table:
    """The results as a table."""
    table = Table("", "area", "fault", "", "by", "ran", "s", show_lines=True)
    for result in results:
        verdict = "caught" if result.caught else "MISSED"
        ran, seconds = f"{result.ran}/{result.covering}", f"{result.seconds:.0f}"
        table.add_row(
            str(result.number), result.area, result.says, verdict, result.by, ran, seconds
        )
    return table


def main(
    only: Annotated[str, typer.Option(help="Numbers of faults, as in 3,7.")] = "",
    tests: Annotated[
        list[str] | None, typer.Option(help="Run the tests of a file or folder. May be repeated.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Leave out a file or folder. May be repeated.")
    ] = None,
    collect: Annotated[bool, typer.Option(help="Make the map of the tests, and end.")] = False,
    kept: Annotated[Path, typer.Option("--map", help="Where the map is kept.")] = MAP,
    seconds: Annotated[float, typer.Option(help="The limit for each fault.")] = 120,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON a fault.")] = False,
) -> None:
    """Seed faults one by one in a copy of the repository; say which of them a test catches."""
    for path in (*(tests or ()), *(without or ())):
        if not (ROOT / path.partition("::")[0]).exists():
            raise typer.BadParameter(f"there is no {path}")
    known = Map(**json.loads(kept.read_text())) if kept.exists() else Map({}, {})
    numbers = {int(one) for one in only.split(",") if one}
    faults = [one for one in FAULTS if not numbers or one.number in numbers]
    left_out, results = [*(without or ())], list[Result]()
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder, "copy"))
        if collect:
            copy.probe(FAULTS)
            copy.run(tests or [], {LOG: f"{folder}/log"})
            kept.parent.mkdir(parents=True, exist_ok=True)
            found = Map.of_log(Path(folder, "log"))
            kept.write_text(json.dumps(asdict(known.renewed(found) if tests else found)))
            return
        judge = Judge(copy, known, tests or [], left_out, seconds)
        for fault in track(faults, "faults", console=Console(stderr=True)):
            results.append(judge.result(fault))
            if as_json:
                print(json.dumps(asdict(results[-1])), flush=True)
    if not as_json:
        Console().print(table_of(results))
        print(f"{sum(one.caught for one in results)} of {len(results)} caught")


if __name__ == "__main__":
    typer.run(main)
