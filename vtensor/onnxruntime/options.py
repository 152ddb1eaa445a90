"""Options of sessions and runs, as ONNX Runtime names them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, ClassVar

from vtensor.language.records import dataclass
from vtensor.onnxruntime.errors import NotImplemented, missing, status  # noqa: A004
from vtensor.onnxruntime.notes import note


class _Choice(IntEnum):
    """A named number whose text is its name."""

    __str__ = Enum.__str__


class GraphOptimizationLevel(_Choice):
    """How far a graph is optimised. VTensor knows two levels: all or nothing."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Choice):
    """Whether nodes run one after another; VTensor ignores it."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass(frozen=True)
class _Setting:
    """An attribute of options: checked when it is set, and noted if it has no meaning here.

    Attributes:
        default: the value of an attribute that is not set; its type is the attribute's.
        used: False if VTensor ignores the attribute.
    """

    default: Any
    used: bool = False

    def checked(self, owner: object, name: str, value: object) -> Any:
        """Return ``value`` in the type of the default.

        Raises:
            TypeError: ``value`` is not of that type.
        """
        kind = type(self.default)
        if kind is int and hasattr(value, "__index__") and not isinstance(value, Enum):
            value = int(value.__index__())
        elif kind is bool and isinstance(value, int):
            value = bool(value)
        elif not isinstance(value, kind):
            raise TypeError(
                f"{type(owner).__name__}.{name} is of type {kind.__name__}, not "
                f"{type(value).__name__}: {value!r}"
            )
        if not self.used and value != self.default:
            note(f"{type(owner).__name__}.{name}={value!s}")
        return value


#: Entries of a session that have a meaning here: the folder of external data, and the format of the
#: model's file.
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
MODEL_FORMAT = "session.load_model_format"


class _Options:
    """Attributes by the table ``_settings``, and a table of entries by key.

    Another attribute cannot be set, as in ONNX Runtime, so that a misspelt one is found.
    """

    _settings: ClassVar[Mapping[str, _Setting]] = {}

    def __init__(self) -> None:
        vars(self).update(_values={}, _entries={})

    def __getattr__(self, name: str) -> Any:
        if name not in self._settings:
            raise missing(type(self).__name__, name)
        return self._values.get(name, self._settings[name].default)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._settings:
            raise missing(type(self).__name__, name)
        self._values[name] = self._settings[name].checked(self, name, value)

    def _add(self, key: str, value: str) -> None:
        """Set a configuration entry.

        Raises:
            TypeError: the key or the value is no text.
        """
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a configuration entry is two texts, not {key!r} and {value!r}")
        self._entries[key] = value
        if key not in (DATA_FOLDER, MODEL_FORMAT):
            note(f"the configuration entry {key!r}")

    def _get(self, key: str) -> str:
        """Return a configuration entry.

        Raises:
            RuntimeError: the entry was not set.
        """
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return str(self._entries[key])


class SessionOptions(_Options):
    """Options of a session.

    ``intra_op_num_threads``, ``graph_optimization_level``, ``use_deterministic_compute``,
    profiling, overrides of free dimensions and the folder of external data have their effect;
    ``optimized_model_filepath`` is refused when a session is made; all else is ignored, and the log
    says so once.
    """

    _settings: ClassVar[Mapping[str, _Setting]] = {
        "enable_cpu_mem_arena": _Setting(True),
        "enable_mem_pattern": _Setting(True),
        "enable_mem_reuse": _Setting(True),
        "enable_profiling": _Setting(False, used=True),
        "execution_mode": _Setting(ExecutionMode.ORT_SEQUENTIAL),
        "graph_optimization_level": _Setting(GraphOptimizationLevel.ORT_ENABLE_ALL, used=True),
        "inter_op_num_threads": _Setting(0),
        "intra_op_num_threads": _Setting(0, used=True),
        "log_severity_level": _Setting(-1),
        "log_verbosity_level": _Setting(0),
        "logid": _Setting(""),
        "optimized_model_filepath": _Setting("", used=True),
        "profile_file_prefix": _Setting("onnxruntime_profile_", used=True),
        "use_deterministic_compute": _Setting(False, used=True),
        "use_per_session_threads": _Setting(True),
    }

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(_by_name={}, _by_denotation={})

    add_session_config_entry = _Options._add
    get_session_config_entry = _Options._get

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of each dimension of an input that the model calls ``name``."""
        _override(self._by_name, name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the size of each dimension of an input that has the denotation ``denotation``."""
        _override(self._by_denotation, denotation, size)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library of operators that are compiled for ONNX Runtime.

        Raises:
            NotImplemented: always.
        """
        raise status(
            NotImplemented,
            f"VTensor cannot load the operators of {path!r}, which are compiled for ONNX Runtime; "
            "docs/guide.md says how to add an operator",
        )


class RunOptions(_Options):
    """Options of a run. A run fails if ``terminate`` is True before or after it; all else is
    ignored.
    """

    _settings: ClassVar[Mapping[str, _Setting]] = {
        "log_severity_level": _Setting(-1),
        "log_verbosity_level": _Setting(0),
        "logid": _Setting(""),
        "only_execute_path_to_fetches": _Setting(False, used=True),  # VTensor always does
        "terminate": _Setting(False, used=True),
    }

    add_run_config_entry = _Options._add
    get_run_config_entry = _Options._get


def _override(sizes: dict[str, int], name: object, size: object) -> None:
    """Set the size of a dimension in a table.

    Raises:
        TypeError: the name is no text, or the size no integer.
    """
    if not isinstance(name, str) or not hasattr(size, "__index__"):
        raise TypeError(f"a dimension has a text and an integer, not {name!r} and {size!r}")
    sizes[name] = int(size.__index__())
