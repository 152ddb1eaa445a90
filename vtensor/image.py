"""Conversion of a picture to a tensor: resize, crop, scale, normalise."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from vtensor.errors import InputError
from vtensor.language.user_files import open_plain_file
from vtensor.language.wording import reason

Array = np.ndarray[Any, Any]

#: Mean and standard deviation of ImageNet's pixels, by channel, on a scale of 0 to 1.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def _imagenet(pixels: Array) -> Array:
    normal: Array = (pixels / 255 - np.array(MEAN)) / np.array(DEVIATION)
    return normal


#: Preprocessing functions by name: they take pixels of 0 to 255, channels last.
PREPROCESS: dict[str, Callable[[Array], Array]] = {
    "imagenet": _imagenet,
    "unit": lambda pixels: pixels / 255,
    "none": lambda pixels: pixels,
}


def load_image(
    file: str | PathLike[str], height: int, width: int, preprocess: str = "imagenet"
) -> Array:
    """Read a picture, resize it to cover ``height`` by ``width``, crop the middle, preprocess it.

    Args:
        file: a picture in any format that Pillow reads.
        height, width: the size of the result in pixels, at least 1.
        preprocess: ``imagenet`` scales to 0..1, subtracts ImageNet's mean and divides by ImageNet's
            standard deviation; ``unit`` scales to 0..1; ``none`` leaves 0..255.

    Returns:
        An array of height x width x 3, float32.

    Raises:
        InputError: the file is missing or no picture, or ``preprocess`` is unknown.
    """
    from PIL import Image, ImageOps

    if preprocess not in PREPROCESS:
        raise InputError(f"preprocess={preprocess!r}: one of {', '.join(PREPROCESS)}")
    try:
        with open_plain_file(file) as stream, Image.open(stream) as image:
            fitted = ImageOps.fit(image.convert("RGB"), (width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{file}: cannot be read as a picture: {reason(error)}") from error
    return PREPROCESS[preprocess](np.asarray(fitted, np.float64)).astype(np.float32)


def image_for(shape: tuple[int, ...], file: str | PathLike[str], preprocess: str) -> Array:
    """Return a picture as an array of the shape of a network's input.

    Each item of the batch is the same picture. The channels are the axis of size 3 (or 1, for grey)
    before or after height and width.

    Args:
        shape: the shape of the network's input.
        file: a picture in any format that Pillow reads.
        preprocess: the name of the picture's preprocessing, in ``PREPROCESS``.

    Raises:
        InputError: the shape is not that of images, or ``load_image`` raises it.
    """
    if len(shape) == 4 and shape[1] in (1, 3):
        channels_first = True
    elif len(shape) == 4 and shape[3] in (1, 3):
        channels_first = False
    else:
        raise InputError(f"a picture does not go into an input of shape {shape}")
    batch, *sizes = shape
    height, width = sizes[1:] if channels_first else sizes[:2]
    pixels = load_image(file, height, width, preprocess)
    if (sizes[0] if channels_first else sizes[2]) == 1:
        pixels = pixels.mean(axis=2, keepdims=True)
    item = np.moveaxis(pixels, 2, 0) if channels_first else pixels
    return np.ascontiguousarray(np.broadcast_to(item, (batch, *item.shape)))
