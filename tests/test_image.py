"""Pictures become arrays: size, order of channels, scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vtensor.errors import InputError
from vtensor.image import DEVIATION, MEAN, PREPROCESS, image_for, load_image


@pytest.fixture
def stripe(tmp_path: Path) -> Path:
    """Write a picture, 60 high and 40 wide: the upper half red, the lower half blue."""
    pixels = np.zeros((60, 40, 3), np.uint8)
    pixels[:30, :, 0] = pixels[30:, :, 2] = 255
    file = tmp_path / "stripe.png"
    Image.fromarray(pixels).save(file)
    return file


def test_pixels_are_cropped_around_the_middle_and_scaled(stripe: Path) -> None:
    pixels = load_image(stripe, 40, 40, "none")
    assert pixels.shape == (40, 40, 3)
    assert pixels.dtype == np.float32
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[-1, 0].tolist() == [0, 0, 255]
    assert (pixels[:20, :, 0] == 255).all()
    assert load_image(stripe, 8, 8, "unit").max() == 1
    red = load_image(stripe, 8, 8, "imagenet")[0, 0]
    expected = (np.array([1, 0, 0]) - MEAN) / np.array(DEVIATION)
    np.testing.assert_allclose(red, expected, rtol=1e-6)


def test_channels_are_where_the_input_has_them(stripe: Path) -> None:
    first = image_for((2, 3, 16, 24), stripe, "unit")
    last = image_for((2, 16, 24, 3), stripe, "unit")
    assert first.shape == (2, 3, 16, 24)
    np.testing.assert_array_equal(np.moveaxis(first, 1, 3), last)
    np.testing.assert_array_equal(first[0], first[1])
    grey = image_for((1, 1, 8, 8), stripe, "none")
    assert grey.shape == (1, 1, 8, 8)
    assert grey[0, 0, 0, 0] == 85  # the mean of the channels
    for shape in ((1, 5, 8, 8), (1, 3, 8), (10,)):
        with pytest.raises(InputError, match="does not go into an input of shape"):
            image_for(shape, stripe, "unit")


def test_bad_files_and_names_are_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "no.png").write_bytes(b"\x89PNG but not really")
    for name in ("no.png", "missing.jpg"):
        with pytest.raises(InputError, match="cannot be read as a picture"):
            load_image(tmp_path / name, 8, 8)
    with pytest.raises(InputError, match=f"one of {', '.join(PREPROCESS)}"):
        load_image(tmp_path / "no.png", 8, 8, "caffe")
