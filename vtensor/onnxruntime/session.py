"""``InferenceSession`` on top of ``vtensor.Session``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtensor.errors import InputError, ModelError, UnsupportedOperatorError, VTensorError
from vtensor.onnxruntime import errors, metadata
from vtensor.onnxruntime.binding import IOBinding
from vtensor.onnxruntime.errors import InvalidArgument, status
from vtensor.onnxruntime.metadata import ELEMENTS, NodeArg, element_number
from vtensor.onnxruntime.options import DATA_FOLDER, MODEL_FORMAT, RunOptions, SessionOptions
from vtensor.onnxruntime.providers import Provider, chosen
from vtensor.onnxruntime.values import Array, OrtValue
from vtensor.runtime.execution.looks import LOOK
from vtensor.runtime.session import Session as Network

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

#: The bytes from the fourth on of a model in ONNX Runtime's own format.
_ORT_MARK = b"ORTM"

#: Attributes of a session that belong to its process; a pickled session makes them again.
_UNPICKLED = ("_sess", "_is_loose", "_pool", "_fed")

#: What the file says about an input or output that only VTensor knows.
_UNDECLARED = NodeArg("", "", [], declared=False)


class Session:
    """A model that runs: what ``InferenceSession`` can do once it is made."""

    _sess: Network
    _declared: metadata.Declared
    _sess_options: SessionOptions
    _provider_options: dict[str, dict[str, str]]
    _profiling_start: int
    #: True once the model was loaded without sizes that may be false.
    _is_loose = False
    _pool: ThreadPoolExecutor | None = None
    #: The arrays of the last run, while runs are profiled; None while they are not.
    _fed: Mapping[str, object] | None = None

    def __getattr__(self, name: str) -> Any:
        raise errors.missing("InferenceSession", name)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Run the model and return its outputs.

        Args:
            output_names: names of the wanted outputs; None or an empty list is all.
            input_feed: arrays, OrtValues or nested lists, by the input's name. An initializer that
                is an input as well may be among them.
            run_options: options of this run.

        Raises:
            ValueError: an input is missing.
            RuntimeError: a value is no array, or lists are ragged.
            InvalidArgument: a name is wrong, or an input's rank, shape or element type is.
            Fail: shapes do not fit each other inside of the model, or ``terminate`` is set.
            NotImplemented: VTensor lacks an operator of the model.
            RuntimeException: a library failed, or memory ran out.
        """
        _check_run(run_options)
        if run_options is None:
            return self._answers(output_names, input_feed)
        look = partial(_check_run, run_options)  # another thread may set ``terminate``
        before = LOOK.set(look)
        try:
            results = self._answers(output_names, input_feed)
        finally:
            LOOK.reset(before)
        look()
        return results

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model as ``run`` does, from OrtValues to OrtValues."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(result) for result in results]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callable[[list[Array], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model on another thread, which then calls ``callback``.

        Args:
            output_names, input_feed, run_options: as for ``run``; the arrays must not change until
                the run has ended.
            callback: called with the outputs, ``user_data`` and an empty text; if the run fails,
                with an empty list, ``user_data`` and the message.
            user_data: an object for the callback.
        """

        def work() -> None:
            results, message = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:  # the callback reports it
                message = str(error)
            callback(results, user_data, message)

        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "vtensor-run-async")
        self._pool.submit(work)

    def io_binding(self) -> IOBinding:
        """Return a new binding of inputs and outputs to memory."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Run the model on bound inputs, and write its outputs to bound memory.

        Raises:
            ValueError: the binding is another session's.
            RuntimeError: no output is bound, or the run fails.
        """
        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        _check_run(run_options)
        iobinding._run()
        _check_run(run_options)

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that a run must be given, in order."""
        return [*self._inputs_meta]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, in order."""
        return [*self._outputs_meta]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have a default and may be given."""
        return [*self._overridable_initializers]

    def get_modelmeta(self) -> metadata.ModelMetadata:
        """Return what the model says about itself."""
        return self._declared.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of the session."""
        return self._sess_options

    def get_providers(self) -> list[str]:
        """Return the names of the providers that were asked for and are available."""
        return [*self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider, by its name."""
        return {name: {**options} for name, options in self._provider_options.items()}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[object, object]] | None = None,
    ) -> None:
        """Set the providers. The plans stay, since VTensor runs the model whatever they are.

        Raises:
            ValueError: the arguments are malformed.
            RuntimeError: no build of ONNX Runtime has such a provider.
        """
        self._provider_options = chosen(providers, provider_options, False)

    @property
    def _providers(self) -> list[str]:
        return [*self._provider_options]

    def enable_fallback(self) -> None:
        """Do nothing: no provider of VTensor fails."""

    def disable_fallback(self) -> None:
        """Do nothing: no provider of VTensor fails."""

    def get_profiling_start_time_ns(self) -> int:
        """Return the time at which profiling began; 0 without profiling."""
        return self._profiling_start

    def end_profiling(self) -> str:
        """Write a trace and return the name of its file; empty if runs are not profiled.

        The trace is that of one more run, on the arrays of the last run.
        """
        import json

        fed, self._fed = self._fed, None
        if fed is None:
            return ""
        stamp = f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{time.time_ns() // 10**6 % 1000:03}"
        name = f"{self._sess_options.profile_file_prefix}_{stamp}.json"
        known = fed.keys() >= {arg.name for arg in self._inputs_meta}
        trace = self._sess.profile(fed, runs=1).to_trace()["traceEvents"] if known else []
        Path(name).write_text("[\n" + ",\n".join(map(json.dumps, trace)) + "\n]", "utf-8")
        return name

    def _answers(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
    ) -> list[Array]:
        """Run the model, with the exceptions of ``run``.

        Args:
            output_names, feed: as for ``run``.
            out: the arrays to write outputs to, by the output's name.
        """
        if output_names:
            if isinstance(output_names, str | bytes):
                raise TypeError(f"output_names is a list of names, not {output_names!r}")
            for name in output_names:
                if name not in self._known:
                    raise status(InvalidArgument, f"Invalid output name:{name}")
        if self._fed is not None:
            self._fed = {**feed}
        try:
            return self._sess.run(output_names, feed, out=out or None)
        except VTensorError as error:
            if self._is_loose or not self._may_be_false(feed, error):
                raise self._fault(feed, error) from error
            first = error
        self._is_loose = True
        try:
            loose = self._network(*self._edited(loose=True))
            results: list[Array] = loose.run(output_names, feed, out=out or None)
        except Exception:
            raise self._fault(feed, first) from first
        self._sess = loose
        return results

    def _may_be_false(self, feed: Mapping[str, object], error: VTensorError) -> bool:
        """Return whether a run may have failed because the model declares false sizes.

        ONNX Runtime takes the names of open sizes and the sizes of outputs for a comment, and so
        models have wrong ones.
        """
        if isinstance(error, UnsupportedOperatorError) or self._input_fault(feed) is not None:
            return False
        sizes: dict[str, int] = {}
        clash = isinstance(error, ModelError)
        for name, value in feed.items() if isinstance(error, InputError) else ():
            for size, have in zip(self._names[name].shape, np.asarray(value).shape, strict=False):
                clash |= isinstance(size, str) and sizes.setdefault(size, have) != have
        return clash

    def _input_fault(self, feed: Mapping[str, object]) -> tuple[type[Exception], str] | None:
        """Return what is wrong with the arrays of a run, in ONNX Runtime's words, and the
        exception's class; None if nothing is.
        """
        names = [arg.name for arg in self._inputs_meta]
        if lacking := [name for name in names if name not in feed.keys()]:  # noqa: SIM118
            text = f"Required inputs ({lacking}) are missing from input feed ({[*feed]})."
            return ValueError, text
        for name, value in feed.items():
            if name not in self._names:
                return InvalidArgument, f"Invalid input name: {name}"
            if (fault := _array_fault(self._names[name], value)) is not None:
                return fault
        return None

    def _fault(self, feed: Mapping[str, object], error: VTensorError) -> Exception:
        """Return the exception that ONNX Runtime would raise for a run that failed.

        Args:
            feed: what the run was fed.
            error: VTensor's error, whose message follows.
        """
        if isinstance(error, InputError):
            kind, text = self._input_fault(feed) or (InvalidArgument, "")
            text = f"{text}\n{error}".strip()
            return status(kind, text) if kind in errors.STATUS else kind(text)
        if isinstance(error, ModelError) and not isinstance(error, UnsupportedOperatorError):
            return status(errors.Fail, f"the model cannot run on these inputs: {error}")
        return status(errors.class_of(error), str(error))


class InferenceSession(Session):
    """A model that is ready to run.

    Args:
        path_or_bytes: path of an ONNX file, or its bytes.
        sess_options: options; None is the defaults.
        providers: names of execution providers, or pairs of a name and options. Whatever they are,
            VTensor runs the model on the processor.
        provider_options: the options of each provider, if ``providers`` has names only.
        kwargs: ``enable_fallback=0`` raises an error for malformed providers; all else is ignored.

    Raises:
        NoSuchFile: the file does not exist.
        InvalidProtobuf: it is no ONNX, or is cut short.
        InvalidGraph: its graph is inconsistent.
        NotImplemented: VTensor lacks an operator; the model is in ONNX Runtime's own format; or
            ``optimized_model_filepath`` is set.
        InvalidArgument: it has no graph.
        RuntimeException: memory ran out.
        TypeError: an argument is of another type.

    A pickled session has the model's path or bytes and its options; the model is loaded anew where
    it is unpickled.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[dict[object, object]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._model_path: str | None = None
        self._model_bytes: bytes | None = None
        if isinstance(path_or_bytes, bytes):
            self._model_bytes = path_or_bytes
        elif isinstance(path_or_bytes, str | os.PathLike) and str(path_or_bytes):
            self._model_path = os.fspath(path_or_bytes)
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if not isinstance(sess_options, SessionOptions | None):
            raise TypeError(f"sess_options is {type(sess_options)}, not SessionOptions")
        self._sess_options = SessionOptions() if sess_options is None else deepcopy(sess_options)
        fall_back = int(kwargs.get("enable_fallback", 1)) == 1
        self._provider_options = chosen(providers, provider_options, fall_back)
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _UNPICKLED}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)
        self._load()

    def _load(self) -> None:
        """Load the model and describe its inputs and outputs."""
        options = self._sess_options
        _check_supported(options, self._model_path, self._model_bytes)
        self._declared = _declared(self._model, self._label)
        model, folder = self._edited()
        if model is not self._model:
            self._declared = _declared(model, self._label)
        self._sess = self._network(model, folder)
        self._describe(model)
        self._fed = {} if options.enable_profiling else None
        self._profiling_start = time.monotonic_ns() if options.enable_profiling else 0

    @property
    def _model(self) -> str | bytes:
        """The path of the model, or its bytes."""
        model = self._model_bytes if self._model_path is None else self._model_path
        assert model is not None, "one of both is given"
        return model

    @property
    def _label(self) -> str:
        """The beginning of messages about loading the model."""
        return "" if self._model_path is None else f"Load model from {self._model_path} failed:"

    def _edited(self, loose: bool = False) -> tuple[str | bytes, str | None]:
        """Return the model with the sizes that the options fix, and the folder of external data.

        Args:
            loose: True makes all other open sizes independent, and drops the sizes of outputs.
        """
        options, path = self._sess_options, self._model_path
        overrides = options._by_name, options._by_denotation
        model = metadata.edited(self._model, *overrides, loose)
        folder = options._entries.get(DATA_FOLDER)
        if folder is None and path is not None and isinstance(model, bytes):
            folder = str(Path(path).resolve().parent)
        return model, folder

    def _network(self, model: str | bytes, folder: str | None) -> Network:
        """Return a session of VTensor with these options."""
        options = self._sess_options
        threads = options.intra_op_num_threads
        try:
            return Network(
                model,
                threads=threads if threads > 0 else None,
                optimize="all" if options.graph_optimization_level else "none",
                deterministic=options.use_deterministic_compute,
                external_data_root=folder,
            )
        except VTensorError as error:
            is_odd = any(map(_is_no_array, (*self._declared.inputs, *self._declared.outputs)))
            kind = errors.NotImplemented if is_odd else errors.class_of(error)
            raise status(kind, f"{self._label}{error}") from error

    def _describe(self, model: str | bytes) -> None:
        """Set the descriptions of inputs and outputs, and the names that a run may use."""
        inputs, outputs = (
            {arg.name: arg for arg in args}
            for args in (self._declared.inputs, self._declared.outputs)
        )
        ports = self._sess.outputs
        self._inputs_meta = [
            inputs.pop(port.name, _UNDECLARED).completed(port) for port in self._sess.inputs
        ]
        self._overridable_initializers = [*inputs.values()] if self._declared.overridable else []
        described = [outputs.get(port.name, _UNDECLARED) for port in ports]
        partly = any(
            not arg.declared or (None, None) in zip(arg.shape, port.shape, strict=False)
            for arg, port in zip(described, ports, strict=True)
        )
        inferred = metadata.inferred_outputs(model) if partly else {}
        self._outputs_meta = [
            arg.completed(port, inferred.get(port.name))
            for arg, port in zip(described, ports, strict=True)
        ]
        self._known = frozenset(arg.name for arg in self._outputs_meta)
        feedable = [*self._inputs_meta, *self._overridable_initializers]
        self._names = {arg.name: arg for arg in feedable}


def _check_supported(options: SessionOptions, path: str | None, data: bytes | None) -> None:
    """Raise NotImplemented if options or the model ask for what VTensor lacks."""
    text = ""
    if options.optimized_model_filepath:
        text = "optimized_model_filepath: VTensor writes no optimised model; see `vtensor export`"
    elif (
        options._entries.get(MODEL_FORMAT, "").upper() == "ORT"
        or (path or "").lower().endswith(".ort")
        or (data or b"")[4:8] == _ORT_MARK
    ):
        text = "VTensor does not read ONNX Runtime's own format; to fix: load the ONNX file"
    if text:
        raise status(errors.NotImplemented, text)


def _declared(model: str | bytes, label: str) -> metadata.Declared:
    """Return what a model declares.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidArgument, Fail: as ONNX Runtime does.
    """
    try:
        found = metadata.declared(model)
    except FileNotFoundError as error:
        text = f"{label}Load model {model!s} failed. File doesn't exist"
        raise status(errors.NoSuchFile, text) from error
    except (OSError, ValueError) as error:
        raise status(errors.Fail, f"{label}{error}") from error
    if found is None:
        text = f"{label}Protobuf" if label else "Failed to load model because protobuf"
        raise status(errors.InvalidProtobuf, f"{text} parsing failed.")
    if not found.has_graph:
        raise status(InvalidArgument, f"{label}No graph was found in the protobuf.")
    return found


def _is_no_array(arg: NodeArg) -> bool:
    """Return whether an input or output is a text, a sequence or a map, if it has a type."""
    return "string" in arg.type or arg.type[:7] not in ("", "tensor(")


def _check_run(run_options: RunOptions | None) -> None:
    """Raise an error if the options of a run are none, or forbid it."""
    if isinstance(run_options, RunOptions):
        if run_options.terminate:
            raise status(errors.Fail, "Exiting due to terminate flag being set to true.")
    elif run_options is not None:
        raise TypeError(f"run_options is {type(run_options)}, not RunOptions")


def _array_fault(arg: NodeArg, value: object) -> tuple[type[Exception], str] | None:
    """Return what is wrong with a value for an input, in ONNX Runtime's words, and the exception's
    class; None if nothing is.
    """
    if isinstance(value, OrtValue):
        value = value.numpy()
    if not isinstance(value, np.ndarray):
        if isinstance(value, list | tuple):
            return RuntimeError, "Could not create tensor from given input list"
        if not hasattr(value, "__array__") and not hasattr(value, "__dlpack__"):
            return RuntimeError, f"Unable to handle object of type {type(value)}"
        return None
    try:
        actual = f"tensor({ELEMENTS[element_number(value.dtype)]})"
    except RuntimeError as error:
        return InvalidArgument, str(error)
    if actual != arg.type:
        text = f"Unexpected input data type. Actual: ({actual}) , expected: ({arg.type})"
        return InvalidArgument, text
    remedy = "Please fix either the inputs/outputs or the model."
    if not arg.declared:
        return None
    if value.ndim != len(arg.shape):
        text = f"Invalid rank for input: {arg.name} Got: {value.ndim} Expected: {len(arg.shape)}"
        return InvalidArgument, f"{text} {remedy}"
    wrong = [
        f" index: {axis} Got: {have} Expected: {size}\n"
        for axis, (have, size) in enumerate(zip(value.shape, arg.shape, strict=True))
        if isinstance(size, int) and have != size
    ]
    if not wrong:
        return None
    text = f"Got invalid dimensions for input: {arg.name} for the following indices\n"
    return InvalidArgument, f"{text}{''.join(wrong)} {remedy}"
