"""Recurrent networks: a text recogniser, a voice detector, a text classifier."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from eval.models_today.exporting import Sample, export, image
from vtensor.benchmark.peer import Array


def _crnn() -> Any:
    """Return a text recogniser: convolutions over a picture of a line, and two bidirectional LSTMs
    over its columns.
    """
    import torch
    from torch import nn

    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts: list[Any] = []
            widths = (1, 64, 128, 256, 256, 512)
            pools = ((2, 2), (2, 2), None, (2, 1), (2, 1))
            for inward, out, pool in zip(widths, widths[1:], pools, strict=False):
                parts += [nn.Conv2d(inward, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
                parts += [nn.MaxPool2d(pool, pool)] if pool else []
            self.features = nn.Sequential(*parts, nn.Conv2d(512, 512, (2, 1)), nn.ReLU())
            self.lstm = nn.LSTM(512, 256, num_layers=2, bidirectional=True)
            self.out = nn.Linear(512, 100)

        def forward(self, line: Any) -> Any:
            columns = self.features(line).squeeze(2).permute(2, 0, 1)
            return torch.log_softmax(self.out(self.lstm(columns)[0]), 2)

    return Crnn()


def _voice() -> Any:
    """Return a voice detector: a Fourier transform as a convolution, four convolutions, an LSTM,
    and a sigmoid.
    """
    import torch
    from torch import nn

    class Voice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.basis = nn.Conv1d(1, 258, 256, 128, bias=False)
            widths = (129, 128, 64, 64, 128)
            parts: list[Any] = []
            for inward, out in itertools.pairwise(widths):
                parts += [
                    nn.Conv1d(inward, out, 3, padding=1, stride=2 if out == 64 else 1),
                    nn.ReLU(),
                ]
            self.features = nn.Sequential(*parts)
            self.cell = nn.LSTM(128, 128)
            self.out = nn.Conv1d(128, 1, 1)

        def forward(self, sound: Any, hidden: Any, cell: Any) -> Any:
            padded = nn.functional.pad(sound.unsqueeze(1), (0, 64), mode="reflect")
            spectrum = self.basis(padded)
            strength = torch.sqrt(spectrum[:, :129] ** 2 + spectrum[:, 129:] ** 2)
            steps = self.features(strength).permute(2, 0, 1)
            states, (hidden, cell) = self.cell(steps, (hidden, cell))
            speech = torch.sigmoid(self.out(torch.relu(states).permute(1, 2, 0)))
            return speech.mean(2), hidden, cell

    return Voice()


def _gru() -> Any:
    """Return a text classifier: embedded words, two GRUs, a matrix product of the last state."""
    from torch import nn

    class Classes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5000, 128)
            self.gru = nn.GRU(128, 256, num_layers=2, batch_first=True)
            self.out = nn.Linear(256, 20)

        def forward(self, words: Any) -> Any:
            return self.out(self.gru(self.words(words))[0][:, -1])

    return Classes()


def _make_crnn(path: Path, exporter: str) -> dict[str, Array]:
    line = Sample(image(1, 32, 320).array, {})
    return export(_crnn, {"line": line}, ["y"], path, exporter)


def _make_voice(path: Path, exporter: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    state = Sample(np.zeros((1, 1, 128), np.float32), {})
    sound = Sample(rng.standard_normal((1, 576)).astype(np.float32), {})
    samples = {"sound": sound, "hidden": state, "cell": state}
    return export(_voice, samples, ["speech", "hidden_after", "cell_after"], path, exporter)


def _make_gru(path: Path, exporter: str) -> dict[str, Array]:
    words = np.random.default_rng(0).integers(0, 5000, (1, 60))
    return export(_gru, {"words": Sample(words, {})}, ["y"], path, exporter)


MODELS = {"crnn": _make_crnn, "voice": _make_voice, "gru_classifier": _make_gru}
