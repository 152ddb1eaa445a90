"""Golden files: text that is compared as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: A golden file that is longer is not read by anybody.
LONGEST = 60


@dataclass(frozen=True)
class Golden:
    """The golden files of one test."""

    folder: Path
    test: str
    update: bool

    def check(self, text: str, name: str = "") -> None:
        """The text is what the file says, up to the newline at its end."""
        file = self.folder / f"{name or self.test}.txt"
        assert text.count("\n") < LONGEST, "a golden text stays short"
        if self.update:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n", encoding="utf-8")
        assert file.is_file(), f"no {file}: run with --update-golden and look at what it writes"
        assert f"{text}\n" == file.read_text(encoding="utf-8")
