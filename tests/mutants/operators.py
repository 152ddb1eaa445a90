"""Faults 62 to 75: operators, their definitions and their ONNX spellings."""

from __future__ import annotations

AREA = "ops"

ROWS = {
    (62, AREA, "ops/slice.py"): (
        "A slice that runs backwards from before the first element lacks that element.",
        "slice(max(start, -x.size(dim)), end, step) for dim",
        "slice(start, end, step) for dim",
    ),
    (63, AREA, "ops/resize.py"): (
        "A Resize that crops a box first is written to ONNX without the box.",
        '    if op.roi and op.coordinates == "tf_crop_and_resize":\n'
        '        raise node.refuse("a box that is cropped first is not written")\n',
        "",
    ),
    (64, AREA, "ops/_sliding.py"): (
        "With ceil_mode there is a window that begins just where the pads at the end begin.",
        "return windows - ((windows - 1) * window.stride >= window.size + window.begin)",
        "return windows - ((windows - 1) * window.stride > window.size + window.begin)",
    ),
    (65, AREA, "ops/_windows.py"): (
        "A window that is smaller than its stride is refused with auto_pad SAME: its pads are "
        "negative.",
        "totals = [max((-(-n // at) - 1) * s + reach - n, 0) for n, at, s, reach in sizes]",
        "totals = [(-(-n // at) - 1) * s + reach - n for n, at, s, reach in sizes]",
    ),
    (66, AREA, "ops/transposed.py"): (
        "A transposed convolution is not extended to an output_shape beyond its windows.",
        "added = (e + max(-total, 0) for total, e in zip(more, extra, strict=True))",
        "added = (e for total, e in zip(more, extra, strict=True))",
    ),
    (67, AREA, "ops/reduce.py"): (
        "The definition rounds a negative mean of integers down, not towards 0.",
        "return np.asarray(total // divisor + ((total % divisor != 0) & (total < 0)))",
        "return np.asarray(total // divisor)",
    ),
    (68, AREA, "ops/quantizelinear.py"): (
        "The definition of QuantizeLinear rounds ties up, not to the even step.",
        "exact = np.rint(steps) if op.to in _INTEGERS else steps",
        "exact = np.floor(steps + 0.5) if op.to in _INTEGERS else steps",
    ),
    (69, AREA, "ops/concat.py"): (
        "Only the pad before the elements is checked for elements to mirror or repeat.",
        "min(a, 0) + min(b, 0), max(a, b)) for dim",
        "min(a, 0) + min(b, 0), a) for dim",
    ),
    (70, AREA, "ops/reshape.py"): (
        "A Gather at one place outside of the dim becomes a slice of another place.",
        "    if not -size <= place < size:\n        return None\n",
        "",
    ),
    (71, AREA, "ops/attention.py"): (
        "An attention whose NaN weights become another number than 0 is computed with 0.",
        '    if match.numbers.get("nothing", 0) != 0:\n        return None\n',
        "",
    ),
    (72, AREA, "ops/recurrent.py"): (
        "The peepholes of an LSTM's forget and output gates are exchanged when it is read.",
        't = _by_gate(node, node.input(7, "dir gate"), 3, (0, 2, 1))',
        't = _by_gate(node, node.input(7, "dir gate"), 3, (0, 1, 2))',
    ),
    (73, AREA, "ops/gather.py"): (
        "A scatter that takes the larger element is written to an opset that has none.",
        '    if reduction in ("max", "min") and node.opset < 18:\n'
        '        raise node.refuse(f"ONNX has reduction {reduction} from opset 18 on")\n',
        "",
    ),
    (74, AREA, "ops/matmul.py"): (
        "A Gemm with beta 0 adds its third input times 0: a NaN there reaches the result.",
        'if not node.has(2) or node.attribute("beta", 1.0) == 0:',
        "if not node.has(2):",
    ),
    (75, AREA, "ops/lrn.py"): (
        "LRN over an even number of channels takes one more channel before, not after, an element.",
        "for reach in ((op.size - 1) // 2, op.size // 2)]",
        "for reach in (op.size // 2, (op.size - 1) // 2)]",
    ),
}
