"""The invokers of ``loopback``: each operator's definition, with its operands somewhere else."""

from __future__ import annotations

from collections import Counter

from libdesc import guideline, invoker
from libdesc.invokers import InvokerFunction, InvokerInfo
from libdesc.onnx_reference import LIBRARY as REFERENCE
from libdesc.preferences import DEFINITION
from libdesc.registry import invokers_of
from ptensor import PTensor, lib_tagger
from ptensor.layout import Layout
from ptensor.transform import pack, unpack
from tests.operators.harness import Given, check_pads, run, storage_of
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

#: How often each operator has run.
ran: Counter[str] = Counter()


def definitions() -> dict[str, InvokerInfo]:
    """What defines each operator: NumPy's invoker; ONNX's evaluator where NumPy has none."""
    return {info.op: info for info in (*invokers_of(REFERENCE), *invokers_of(DEFINITION))}


def declare_invokers() -> None:
    """Register an invoker around each definition."""
    for info in definitions().values():
        dtypes = {role: sorted(types) for role, types in info.dtypes.items()}
        register = invoker(info.op, library="loopback", dtypes=dtypes, when=info.when, python=True)
        register(around(info))


def around(info: InvokerInfo) -> InvokerFunction:
    """An invoker that asks for what ``demanded`` says, and computes what another one does."""

    def loopback(ctx: Context, op: object, *operands: VTensor) -> None:
        tensors = [PTensor(operand) for operand in operands]
        for tensor in tensors:
            tensor.require(guideline("loopback", tensor))
        count = len(tensors[0].call.inputs)
        if lib_tagger("loopback", tensors[:count], tensors[count:]):
            return
        found = run(info.library, op, [_plainly(tensor) for tensor in tensors[:count]])
        for tensor, value in zip(tensors[count:], found.values, strict=True):
            tensor.data()[...] = pack(value, list(tensor.dims), tensor.required_layout)
        for operand in operands:
            check_pads(storage_of(operand))
        ran[info.op] += 1

    return loopback


def _plainly(tensor: PTensor) -> Given:
    """An operand's values in declared order."""
    dims = tuple(tensor.dims)
    values = unpack(tensor.data(), tensor.required_layout, dims, tensor.dims)
    return Given(values, dims, Layout.plain(dims), tensor.constant)
