"""The wheel of these sources, whose build takes minutes: it goes on beside other tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Other processes come first.
COMMAND = ("nice", "-n", "19", sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
LIMIT_S = 900


class Build:
    """A build in a folder of its own, from the sources alone."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it, unless that was done."""
        if self.process is not None:
            return
        self.folder = Path(tempfile.mkdtemp(prefix="vtensor-wheel-"))
        options = [f"--wheel-dir={self.folder}", f"--config-settings=build-dir={self.folder}/b"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *options, str(ROOT)],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def wheel(self) -> Path:
        """The file; waits for it."""
        self.begin()
        assert self.folder is not None
        assert self.process is not None
        code = self.process.wait(LIMIT_S)
        assert code == 0, (self.folder / "log").read_text()
        [file] = self.folder.glob("*.whl")
        return file

    def end(self) -> None:
        """Nothing of it is left."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(LIMIT_S)
        if self.folder is not None:
            shutil.rmtree(self.folder)
        self.folder = self.process = None


#: That of this process.
BUILD = Build()
