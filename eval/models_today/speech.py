"""Whisper's encoder and decoder, and CLIP: transformers for sound and for pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eval.models_today.exporting import Sample, export, image, ones, tokens
from vtensor.benchmark.peer import Array

WORDS = 8000


def _whisper() -> Any:
    from transformers import WhisperConfig, WhisperModel

    return WhisperModel(
        WhisperConfig(
            vocab_size=WORDS,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            d_model=384,
            encoder_layers=4,
            decoder_layers=4,
            encoder_attention_heads=6,
            decoder_attention_heads=6,
            encoder_ffn_dim=1536,
            decoder_ffn_dim=1536,
            use_cache=False,
        )
    )


def _encoder() -> Any:
    import torch

    model = _whisper().encoder

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, features: Any) -> Any:
            return self.model(features)[0]

    return Encoder()


def _decoder() -> Any:
    import torch

    model = _whisper().decoder

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, states: Any) -> Any:
            arguments = {"input_ids": input_ids, "encoder_hidden_states": states}
            mask = torch.ones_like(input_ids)
            return self.model(**arguments, attention_mask=mask, use_cache=False)[0]

    return Decoder()


def _clip() -> Any:
    import torch
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(text_config={"vocab_size": WORDS, "eos_token_id": WORDS - 1})
    model = CLIPModel(config)

    class Likeness(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixels: Any, input_ids: Any, attention_mask: Any) -> Any:
            out = self.model(
                pixel_values=pixels, input_ids=input_ids, attention_mask=attention_mask
            )
            return out.logits_per_image

    return Likeness()


def _make_encoder(path: Path, exporter: str) -> dict[str, Array]:
    sound = np.random.default_rng(0).standard_normal((1, 80, 3000)).astype(np.float32)
    return export(_encoder, {"features": Sample(sound, {})}, ["states"], path, exporter)


def _make_decoder(path: Path, exporter: str) -> dict[str, Array]:
    states = np.random.default_rng(1).standard_normal((1, 1500, 384)).astype(np.float32)
    words = Sample(tokens(32, WORDS).array, {1: "length"})
    samples = {"input_ids": words, "states": Sample(states, {})}
    return export(_decoder, samples, ["y"], path, exporter)


def _make_clip(path: Path, exporter: str) -> dict[str, Array]:
    pixels = Sample(image(3, 224, 224).array, {0: "images"})
    samples = {"pixels": pixels, "input_ids": tokens(16, WORDS, 2), "attention_mask": ones(16, 2)}
    return export(_clip, samples, ["likeness"], path, exporter)


MODELS = {
    "whisper_encoder": _make_encoder,
    "whisper_decoder": _make_decoder,
    "clip": _make_clip,
}
