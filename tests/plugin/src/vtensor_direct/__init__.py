"""A direct convolution as a library of VTensor, which finds it by its entry point."""

from pathlib import Path

DESCRIPTION = Path(__file__).with_name("direct.toml")
