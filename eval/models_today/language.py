"""Language models, built from configurations of the package transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.models_today.exporting import Sample, export, ones, tokens
from vtensor.benchmark.peer import Array

#: The number of words of a sentence, and of the vocabulary. GPT-2's and BERT's vocabularies have
#: 50,257 and 30,522 words, but a look-up reads only the rows of the sentence's words.
LENGTH, WORDS = 128, 8000


def _hidden(model: Any) -> Any:
    """Return a module that maps words and a mask to the last hidden states of ``model``."""
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    return Hidden()


def _sentence(model: Any) -> Any:
    """Return a sentence encoder: the mean of the model's hidden states, normalised to length 1."""
    import torch

    class Sentence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            states = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
            mask = attention_mask.unsqueeze(-1).to(states.dtype)
            mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, p=2.0, dim=1)

    return Sentence()


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    return _hidden(BertModel(BertConfig(vocab_size=WORDS)))


def _distilbert() -> Any:
    from transformers import DistilBertConfig, DistilBertModel

    return _hidden(DistilBertModel(DistilBertConfig(vocab_size=WORDS)))


def _minilm() -> Any:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
    return _sentence(BertModel(BertConfig(vocab_size=WORDS, num_attention_heads=12, **sizes)))


#: Options of generating models: no cache, and words of the vocabulary that begin and end a text.
_ENDS = {"use_cache": False, "bos_token_id": 1, "eos_token_id": 2}


def _logits(model: Any) -> Any:
    """Return a module that maps words to the logits of ``model``, which generates text."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any) -> Any:
            mask = torch.ones_like(input_ids)
            return self.model(input_ids=input_ids, attention_mask=mask, use_cache=False).logits

    return Logits()


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _logits(GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, use_cache=False)))


def _gpt2_past() -> Any:
    """Return GPT-2 as a module that generates one word.

    Its inputs are the last word, and the keys and values of the words before it.
    """
    import torch
    from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS))

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, past: Any) -> Any:
            cache = DynamicCache()
            for layer in range(past.shape[0]):
                cache.update(past[layer, 0], past[layer, 1], layer)
            out = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
            kept = out.past_key_values.layers
            return out.logits, torch.stack(
                [torch.stack([cached.keys, cached.values]) for cached in kept]
            )

    return Step()


def _llama() -> Any:
    """Return a model of Llama's architecture with 100 million weights in its layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return _logits(LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **_ENDS, **sizes, **heads)))


def _neox() -> Any:
    """Return a model of GPT-NeoX's architecture with 57 million weights in its layers."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 8}
    config = GPTNeoXConfig(vocab_size=WORDS, **_ENDS, num_attention_heads=12, **sizes)
    return _logits(GPTNeoXForCausalLM(config))


def _make(build: Callable[[], Any], masked: bool, path: Path, exporter: str) -> dict[str, Array]:
    samples = {"input_ids": tokens(LENGTH, WORDS)}
    if masked:
        samples["attention_mask"] = ones(LENGTH)
    return export(build, samples, ["y"], path, exporter)


def _make_past(path: Path, exporter: str) -> dict[str, Array]:
    past = np.random.default_rng(1).standard_normal((12, 2, 1, 12, LENGTH, 64))
    samples = {
        "input_ids": Sample(np.array([[5]]), {}),
        "past": Sample(past.astype(np.float32), {4: "past_length"}),
    }
    return export(_gpt2_past, samples, ["logits", "present"], path, exporter)


MODELS = {
    "bert_base": partial(_make, _bert, True),
    "distilbert": partial(_make, _distilbert, True),
    "minilm_sentence": partial(_make, _minilm, True),
    "gpt2": partial(_make, _gpt2, False),
    "gpt2_past": _make_past,
    "llama": partial(_make, _llama, False),
    "neox": partial(_make, _neox, False),
}
