"""Classifiers of images, from the package timm."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from eval.models_today.exporting import export, image
from vtensor.benchmark.peer import Array

#: timm's names, and the height and width of an image.
NETWORKS = {
    "vit_small_patch16_224": 224,
    "deit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "mobilevit_s": 256,
    "convnext_tiny": 224,
    "efficientnet_b0": 224,
    "mobilenetv3_large_100": 224,
    "regnety_008": 224,
    "resnet50d": 224,
    "resnext50_32x4d": 224,
    "densenet121": 224,
    "ghostnet_100": 224,
    "repvgg_a2": 224,
}


def _network(name: str) -> Any:
    import timm

    return timm.create_model(name, pretrained=False)


def _make(name: str, size: int, path: Path, exporter: str) -> dict[str, Array]:
    return export(partial(_network, name), {"image": image(3, size, size)}, ["y"], path, exporter)


MODELS = {name: partial(_make, name, size) for name, size in NETWORKS.items()}
