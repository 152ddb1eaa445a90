"""``python -m vtensor.onnxruntime PROGRAM``: run a program whose ``onnxruntime`` is VTensor."""

from __future__ import annotations

import os
import runpy
import sys

from vtensor.onnxruntime.hook import install

USAGE = """usage: python -m vtensor.onnxruntime PROGRAM [ARGS...]
       python -m vtensor.onnxruntime -m MODULE [ARGS...]

Run a Python program, unchanged, with VTensor in place of ONNX Runtime. PROGRAM is the path of a
script, or the name of a command that is a Python script."""


def main(arguments: list[str]) -> int:
    """Run a program; return the exit status if it could not be begun.

    Args:
        arguments: the program's path or command, or ``-m`` and a module; then its own arguments.
    """
    if arguments in ([], ["-m"]) or arguments[0] in ("-h", "--help"):
        is_asked = arguments not in ([], ["-m"])
        print(USAGE, file=sys.stdout if is_asked else sys.stderr)
        return 0 if is_asked else 2
    if arguments[0] == "-m":
        install()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    program: str | None = arguments[0]
    if not os.path.exists(arguments[0]):  # noqa: PTH110
        from shutil import which

        program = which(arguments[0])
    if program is None:
        print(f"{arguments[0]!r} is neither a file nor a command\n\n{USAGE}", file=sys.stderr)
        return 2
    install()
    sys.argv = [program, *arguments[1:]]
    sys.path[0] = os.path.dirname(os.path.realpath(program))  # noqa: PTH120
    runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
