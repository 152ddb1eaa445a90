"""``python -m eval.models_shipped``: the models that packages ship, beside ONNX Runtime."""

from __future__ import annotations

import typer

from eval.models_shipped.shipped import main

if __name__ == "__main__":
    typer.run(main)
