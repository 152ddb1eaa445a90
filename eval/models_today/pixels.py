"""Detection and segmentation: a YOLO, DETR, a U-Net, DeepLab."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from eval.models_today.exporting import export, image
from vtensor.benchmark.peer import Array


def _layers() -> Any:
    """Return the blocks of a YOLO of 2023: a convolution with SiLU, a cross-stage block, and a
    pyramid of pools.
    """
    import torch
    from torch import nn

    def conv(inward: int, out: int, kernel: int = 1, stride: int = 1) -> Any:
        core = nn.Conv2d(inward, out, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(core, nn.BatchNorm2d(out), nn.SiLU())

    class Bottleneck(nn.Module):
        def __init__(self, width: int, add: bool) -> None:
            super().__init__()
            self.body, self.add = nn.Sequential(conv(width, width, 3), conv(width, width, 3)), add

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.add else self.body(x)

    class Cross(nn.Module):
        def __init__(self, inward: int, out: int, count: int, add: bool = True) -> None:
            super().__init__()
            self.first, half = conv(inward, out), out // 2
            self.blocks = nn.ModuleList(Bottleneck(half, add) for _ in range(count))
            self.last = conv((2 + count) * half, out)

        def forward(self, x: Any) -> Any:
            parts = list(self.first(x).chunk(2, 1))
            for block in self.blocks:
                parts.append(block(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Pyramid(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.last = conv(width, width // 2), conv(width * 2, width)
            self.pool = nn.MaxPool2d(5, 1, 2)

        def forward(self, x: Any) -> Any:
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(torch.cat(parts, 1))

    return conv, Cross, Pyramid


def _yolo() -> Any:
    """Return a YOLO for 80 classes: backbone, neck, and a head that predicts distributions of the
    distances to a box's sides apart from its class.
    """
    import torch
    from torch import nn

    conv, cross, pyramid = _layers()
    widths, bins, classes = (64, 128, 256), 16, 80

    def head(width: int, out: int) -> Any:
        inner = max(64, width // 2)
        return nn.Sequential(conv(width, inner, 3), conv(inner, inner, 3), nn.Conv2d(inner, out, 1))

    class Yolo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), cross(32, 32, 1))
            self.p3 = nn.Sequential(conv(32, 64, 3, 2), cross(64, 64, 2))
            self.p4 = nn.Sequential(conv(64, 128, 3, 2), cross(128, 128, 2))
            self.p5 = nn.Sequential(conv(128, 256, 3, 2), cross(256, 256, 1), pyramid(256))
            self.up = nn.Upsample(scale_factor=2)
            self.n4, self.n3 = cross(384, 128, 1, False), cross(192, 64, 1, False)
            self.d3, self.m4 = conv(64, 64, 3, 2), cross(192, 128, 1, False)
            self.d4, self.m5 = conv(128, 128, 3, 2), cross(384, 256, 1, False)
            self.boxes = nn.ModuleList(head(width, 4 * bins) for width in widths)
            self.kinds = nn.ModuleList(head(width, classes) for width in widths)
            self.register_buffer("steps", torch.arange(bins, dtype=torch.float32))

        def forward(self, picture: Any) -> Any:
            x3 = self.p3(self.stem(picture))
            x4 = self.p4(x3)
            x5 = self.p5(x4)
            y4 = self.n4(torch.cat([self.up(x5), x4], 1))
            y3 = self.n3(torch.cat([self.up(y4), x3], 1))
            z4 = self.m4(torch.cat([self.d3(y3), y4], 1))
            z5 = self.m5(torch.cat([self.d4(z4), x5], 1))
            levels = [
                self.level(*heads)
                for heads in zip((y3, z4, z5), self.boxes, self.kinds, strict=False)
            ]
            return torch.cat(levels, 2)

        def level(self, x: Any, boxes: Any, kinds: Any) -> Any:
            sides = boxes(x).flatten(2).unflatten(1, (4, bins)).softmax(2)
            far = (sides * self.steps[:, None]).sum(2)
            rows = torch.arange(x.shape[2], dtype=torch.float32) + 0.5
            columns = torch.arange(x.shape[3], dtype=torch.float32) + 0.5
            places = torch.stack(torch.meshgrid(columns, rows, indexing="xy")).flatten(1)
            begin, end = places - far[:, :2], places + far[:, 2:]
            middle, size = (begin + end) / 2, end - begin
            return torch.cat([middle, size, kinds(x).flatten(2).sigmoid()], 1)

    return Yolo()


def _unet() -> Any:
    import torch
    from torch import nn

    def double(inward: int, out: int) -> Any:
        parts: list[Any] = []
        for width in (inward, out):
            parts += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        return nn.Sequential(*parts)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (32, 64, 128, 256)
            self.down = nn.ModuleList(
                double(a, b) for a, b in zip((3, *widths), widths, strict=False)
            )
            self.bottom = double(256, 512)
            self.ups = nn.ModuleList(
                nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths)
            )
            self.up = nn.ModuleList(double(2 * width, width) for width in reversed(widths))
            self.out = nn.Conv2d(32, 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for block in self.down:
                kept.append(block(x))
                x = nn.functional.max_pool2d(kept[-1], 2)
            x = self.bottom(x)
            for up, block in zip(self.ups, self.up, strict=False):
                x = block(torch.cat([kept.pop(), up(x)], 1))
            return self.out(x)

    return UNet()


def _deeplab() -> Any:
    import torch
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large as make

    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make(weights=None, weights_backbone=None, num_classes=21)

        def forward(self, picture: Any) -> Any:
            return self.model(picture)["out"]

    return Scores()


def _detr() -> Any:
    """Return DETR: a ResNet-18, a transformer of 100 queries, and heads for classes and boxes."""
    import torch
    from torch import nn
    from torchvision.models import resnet18

    torch.backends.mha.set_fastpath_enabled(False)  # ONNX has no operator for it

    class Detr(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(*list(resnet18(weights=None).children())[:-2])
            self.narrow = nn.Conv2d(512, 256, 1)
            self.transformer = nn.Transformer(256, 8, 3, 3, 1024, batch_first=True)
            self.queries = nn.Parameter(torch.rand(100, 256))
            self.rows = nn.Parameter(torch.rand(50, 128))
            self.columns = nn.Parameter(torch.rand(50, 128))
            self.kinds, self.boxes = nn.Linear(256, 92), nn.Linear(256, 4)

        def forward(self, picture: Any) -> Any:
            x = self.narrow(self.features(picture))
            height, width = x.shape[-2:]
            columns = self.columns[:width].unsqueeze(0).expand(height, -1, -1)
            rows = self.rows[:height].unsqueeze(1).expand(-1, width, -1)
            places = torch.cat([columns, rows], -1).flatten(0, 1)
            seen = x.flatten(2).transpose(1, 2) + places
            asked = self.queries.unsqueeze(0).expand(x.shape[0], -1, -1)
            h = self.transformer(seen, asked)
            return self.kinds(h), self.boxes(h).sigmoid()

    return Detr()


def _make(
    build: Any, size: int, outputs: tuple[str, ...], path: Path, exporter: str
) -> dict[str, Array]:
    return export(build, {"image": image(3, size, size)}, outputs, path, exporter)


MODELS = {
    "yolo": partial(_make, _yolo, 320, ("y",)),
    "detr": partial(_make, _detr, 320, ("classes", "boxes")),
    "unet": partial(_make, _unet, 256, ("y",)),
    "deeplab_mobilenet": partial(_make, _deeplab, 256, ("y",)),
}
