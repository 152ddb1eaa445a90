"""Inputs and outputs that are bound to memory before a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vtensor.onnxruntime.errors import missing
from vtensor.onnxruntime.values import Array, OrtDevice, OrtValue, array_at, check_device


class IOBinding:
    """The arrays of a session's runs: inputs that are read, and outputs that are asked for.

    Args:
        session: the InferenceSession whose runs use them.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._inputs: dict[str, object] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[OrtValue] = []

    def __getattr__(self, name: str) -> Any:
        if name == "_iobinding":  # programs call methods of it
            return self
        raise missing("IOBinding", name)

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Bind an input to an array, whose current elements each run reads.

        Raises:
            RuntimeError: there is no such input, or no array is given.
        """
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        self._bind(name, arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value.

        Raises:
            RuntimeError: there is no such input.
        """
        self._bind(name, ortvalue.numpy())

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,  # noqa: ARG002
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to memory at an address, which must stay as long as runs read it.

        Raises:
            RuntimeError: there is no such input, or the memory cannot be used.
        """
        check_device(device_type)
        self._bind(name, array_at(buffer_ptr, element_type, shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, in new memory or at an address.

        Raises:
            ValueError: an address is given without an element type or a shape.
            RuntimeError: the memory cannot be used.
        """
        OrtDevice.make(device_type, device_id)  # without an address, any device is the processor
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError(
                "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
            )
        check_device(device_type)
        self._outputs[name] = array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of a value."""
        self._outputs[name] = ortvalue.numpy()

    def synchronize_inputs(self) -> None:
        """Do nothing: the processor's memory needs no synchronisation."""

    def synchronize_outputs(self) -> None:
        """Do nothing: the processor's memory needs no synchronisation."""

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and those of the last run."""
        self._outputs.clear()
        self._results = []

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were asked for."""
        return [*self._results]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Return the outputs of the last run as arrays."""
        return [np.array(value.numpy()) for value in self._results]

    def _bind(self, name: str, array: object) -> None:
        if name not in self._session._names:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self._inputs[name] = array

    def _run(self) -> None:
        """Run the session on what is bound.

        Raises:
            RuntimeError: no output is asked for, or the run fails; the cause is the exception that
                ``run`` raises.
        """
        if not self._outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        out = {name: array for name, array in self._outputs.items() if array is not None}
        try:
            results = self._session._answers([*self._outputs], self._inputs, out)
        except Exception as error:
            raise RuntimeError(f"Error in execution: {error}") from error
        self._results = [OrtValue(result) for result in results]
