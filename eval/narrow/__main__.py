"""``python -m eval.narrow``: networks in narrow types beside the same in f32 and the peers."""

from __future__ import annotations

import typer

from eval.narrow.narrow_types import main

if __name__ == "__main__":
    typer.run(main)
