"""Execution providers. Whatever a program asks for, VTensor runs the model on the processor."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TypeAlias

#: VTensor, under its own name and under that of ONNX Runtime's processor kernels.
AVAILABLE = ("VTensorExecutionProvider", "CPUExecutionProvider")

#: The provider to which every other one falls back.
FALLBACK = "CPUExecutionProvider"

#: The names that ONNX Runtime's builds use.
_KNOWN = (
    "Tensorrt CUDA MIGraphX OpenVINO Dnnl VitisAI QNN Nnapi VSINPU Js CoreML Dml Rknpu WebNN "
    "WebGpu Xnnpack CANN Azure NvTensorRTRTX ROCM TVM"
)

Options: TypeAlias = dict[str, dict[str, str]]
Provider: TypeAlias = "str | tuple[str, dict[object, object]]"


def get_available_providers() -> list[str]:
    """Return the names under which VTensor can be asked for."""
    return [*AVAILABLE]


def get_all_providers() -> list[str]:
    """Return the names of all providers that are known, whether available or not."""
    return [AVAILABLE[0], *(f"{name}ExecutionProvider" for name in _KNOWN.split()), FALLBACK]


def chosen(
    providers: Sequence[Provider] | None,
    provider_options: Sequence[dict[object, object]] | None,
    fall_back: bool,
) -> Options:
    """Return the providers of a session with their options, the preferred one first.

    A provider that is not available is left out, with the warning of ONNX Runtime; the processor is
    always the last one.

    Args:
        providers: names, or pairs of a name and options; None is all that are available.
        provider_options: the options of each provider, if ``providers`` has names only.
        fall_back: True warns of malformed arguments, and uses the processor.

    Raises:
        ValueError: the arguments are malformed, and ``fall_back`` is False.
        RuntimeError: no build of ONNX Runtime has such a provider, and ``fall_back`` is False.
    """
    try:
        asked = dict(_asked(providers, provider_options))
        for name in asked.keys() - {*get_all_providers()}:
            raise RuntimeError(f"Unknown Provider Type: {name}")
    except (ValueError, RuntimeError) as error:
        if not fall_back:
            raise
        warnings.warn(f"EP Error {error} when using {providers}: {FALLBACK} is used", stacklevel=4)
        asked = {}
    if not providers:
        asked = {name: {} for name in AVAILABLE}
    available = {name: asked[name] for name in asked if name in AVAILABLE}
    return {**available, FALLBACK: asked.get(FALLBACK, {})}


def _asked(
    providers: Sequence[Provider] | None, provider_options: Sequence[dict[object, object]] | None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the options of each provider that a program asks for.

    Raises:
        ValueError: the arguments are malformed.
    """
    if providers is None:
        return
    if not isinstance(providers, Sequence) or isinstance(providers, str):
        raise ValueError("'providers' should be a sequence.")
    pairs = [(each, {}) if isinstance(each, str) else each for each in providers]
    if provider_options is not None:
        if not isinstance(provider_options, Sequence) or len(providers) != len(provider_options):
            raise ValueError(
                "'providers' and 'provider_options' should be the same length if both are given."
            )
        if not all(isinstance(each, str) for each in providers):
            raise ValueError("'providers' should be names if 'provider_options' is given.")
        pairs = [*zip(map(str, providers), provider_options, strict=True)]
    seen = set[str]()
    for pair in pairs:
        if not isinstance(pair, tuple) or [type(part) for part in pair] != [str, dict]:
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        name, given = pair
        if name not in AVAILABLE:
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names."
                f"Available providers: '{', '.join(AVAILABLE)}'",
                stacklevel=6,
            )
        if name in seen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=6)
            continue
        seen.add(name)
        yield name, {str(key): str(value) for key, value in given.items()}
