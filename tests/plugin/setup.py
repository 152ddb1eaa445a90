"""The extension module; all else stands in pyproject.toml."""

from setuptools import Extension, setup

import vtensor

FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Werror"]

setup(
    ext_modules=[
        Extension(
            "vtensor_direct._steps",
            ["native/_steps.c", "native/direct.c"],
            include_dirs=[vtensor.get_include()],
            depends=["native/direct.h"],
            extra_compile_args=FLAGS,
        )
    ]
)
