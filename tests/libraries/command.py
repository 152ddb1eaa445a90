"""The command ``vtensor``, run in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from vtensor.cli import app


def vtensor(*arguments: object) -> Result:
    """Run the command with these arguments, as text."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def data_of(*arguments: object) -> Any:
    """Return what the command prints as JSON; it must not fail."""
    ran = vtensor(*arguments, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)
