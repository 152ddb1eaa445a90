"""The options of a session that its plans depend on, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from libdesc.onnx_reference import LIBRARY as REFERENCE
from libdesc.preferences import Preferences
from optimizer.pipeline import MEASURED, pass_names
from optimizer.settings import Settings
from ptensor.layout import Layout
from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.planning.tolerance import precision_pass, tolerance_of
from vtensor.runtime.tuning.probing import Probe
from vtensor.runtime.tuning.speeds import speeds_asked_for
from vtensor.storage.entries import Entries
from vtensor.storage.inputs import Array

if TYPE_CHECKING:
    from vtensor.runtime.lock.lock_file import Lock

#: The value of ``Session(tune=)`` for measured times that refine the first plan.
BACKGROUND = "background"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of a session that its plans depend on.

    Attributes:
        passes: the names of passes, in order.
        settings: the settings of passes.
        preferences: the libraries that may run each operator or node.
        entry: the layouts of inputs, by name. An input that is missing has its dims in declared
            order.
        delivery: the layouts of outputs, by name. An output that is missing has its dims in
            declared order.
        progress: called with each node's name while it is recorded.
        deterministic: True if no plan is refined after its first run.
        entries: the cache of choices for later processes; None without a cache.
        tolerance: the largest error of results, relative to the largest result. It counts only if
            times are measured.
        finite: True if all numbers are taken to be finite, so that runs do not check them.
        precision: the precision of values in f32: ``"f32"``, or ``"bf16"`` where that is faster.
        calibrate: arrays for inputs, by name, on which errors are measured.
        lock: the lock file that every plan follows; None without one.
        later: the settings of passes that refine a plan by measured times after its first use; None
            if plans are not refined so.
        first: the settings of passes for a provisional plan, which a plan made with ``settings``
            replaces later; None if no plan is provisional.
    """

    passes: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    preferences: Preferences = field(default_factory=Preferences)
    entry: Mapping[str, Layout] = field(default_factory=dict)
    delivery: Mapping[str, Layout] = field(default_factory=dict)
    progress: Progress | None = None
    deterministic: bool = False
    entries: Entries | None = None
    tolerance: float = 0.0
    finite: bool = False
    precision: str = "f32"
    calibrate: Mapping[str, Array] = field(default_factory=dict)
    lock: Lock | None = None
    later: Settings | None = None
    first: Settings | None = None

    @property
    def soon(self) -> Options:
        """The options for a provisional plan, which is made without times of this machine.

        The object itself if the session makes no provisional plan.
        """
        return self if self.first is None else replace(self, settings=self.first)

    @classmethod
    def of(
        cls,
        executor: Executor,
        *,
        optimize: str | Sequence[str],
        objective: str,
        tune: bool | str,
        libraries: Sequence[str] | None,
        pin: Mapping[str, str] | None,
        reference: bool,
        progress: Progress | None,
        deterministic: bool,
        tolerance: float = 0.0,
        finite: bool = False,
        precision: str = "f32",
    ) -> Options:
        """Return the options of a session, checked; the arguments are those of ``Session``.

        Raises:
            InputError: an option is wrong.
        """
        passes = pass_names(optimize)
        if (narrowing := precision_pass(precision)) and narrowing not in passes:
            passes = (*passes, narrowing)
        if isinstance(tune, str) and tune != BACKGROUND:
            raise InputError(f"tune={tune!r} must be True, False or {BACKGROUND!r}")
        if tune and (objective or MEASURED not in passes):
            raise InputError(
                f"tune=True (--tune on the command line) needs the pass {MEASURED!r}, and sets the "
                "objective itself"
            )
        if not (progress is None or callable(progress)):
            raise InputError(f"progress={progress!r} must take a node's name, or be None")
        preferences = preferences_of(libraries, pin, barred=() if reference else (REFERENCE,))
        settings, later = _settings(executor, preferences, objective, tune, deterministic, progress)
        probes = settings.probe is not None and not objective and MEASURED in passes
        return cls(
            passes,
            settings,
            preferences,
            progress=progress,
            deterministic=deterministic,
            tolerance=tolerance_of(tolerance),
            finite=finite,
            precision=precision,
            later=later,
            first=Settings() if probes and not tune and not deterministic else None,
        )


def _settings(
    executor: Executor,
    preferences: Preferences,
    objective: str,
    tune: bool | str,
    deterministic: bool,
    progress: Progress | None,
) -> tuple[Settings, Settings | None]:
    """Return the settings of passes for first plans, and those for refining plans in the
    background.

    The second is None if no plan is refined by measured times. The arguments are those of
    ``Options.of``.
    """
    speeds = speeds_asked_for()
    later = tune == BACKGROUND and not deterministic
    if tune:
        from vtensor.runtime.tuning.measure import BETWEEN
        from vtensor.runtime.tuning.tuner import Tuner
    if tune and not later:
        clock = Tuner(executor, preferences, progress)
        return Settings("time", clock=clock, speeds=speeds), None
    probe = Probe(preferences, executor) if speeds is not None else None
    first = Settings(objective, speeds=speeds, probe=probe)
    if not later:
        return first, None
    clock = Tuner(executor, preferences, None, BETWEEN)
    return first, Settings("time", clock=clock, speeds=speeds)


def transferable(options: Options) -> bool:
    """Return whether choices made with these options may serve other sizes."""
    settings = options.settings
    timed = settings.objective in ("", "time") and settings.clock is None
    return timed and MEASURED in options.passes


def cache_of(options: Options) -> Entries | None:
    """Return the cache of a session's plans; None if there is none or caching is not worth it.

    Only plans of the whole pipeline, chosen by estimated or measured time, are cached.
    """
    worth = options.settings.objective in ("", "time") and MEASURED in options.passes
    return options.entries if worth else None
