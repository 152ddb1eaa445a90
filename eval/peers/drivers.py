"""TensorFlow and PyTorch as peers of the benchmark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from eval.peers.walk import Framework, Tensor
from vtensor import Graph, load_onnx
from vtensor.benchmark.peer import Array, Peer, Task

Function = Callable[[Mapping[str, Tensor]], Sequence[Tensor]]


class Emitted(Peer):
    """A framework that runs a translated graph, with inputs in the layout that it prefers."""

    def load(self, task: Task) -> None:
        self._graph = load_onnx(task.model)
        self._framework, self._function, self._feeds = self.build(self._graph, task)
        self.run()  # the first run compiles

    def run(self) -> Sequence[Array]:
        return self._framework.arrays(self._graph, self._function(self._feeds))

    @abstractmethod
    def build(self, graph: Graph, task: Task) -> tuple[Framework, Function, Mapping[str, Tensor]]:
        """Return the framework, the graph as a function of tensors by name, and its inputs.

        Raises:
            CannotBuild: the framework cannot express a node.
        """


class TensorFlow(Emitted):
    """A TensorFlow function with constant weights, optimised by Grappler.

    With precision bf16, Grappler chooses the operators that run in bf16.

    Source: TensorFlow's manual: tf.config.threading, tf.config.optimizer.
    """

    distribution = "tensorflow-cpu"

    def build(self, graph: Graph, task: Task) -> tuple[Framework, Function, Mapping[str, Tensor]]:
        import tensorflow as tf

        from eval.peers.tensorflow import FRAMEWORK, emit

        tf.config.threading.set_intra_op_parallelism_threads(task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        bf16 = {"auto_mixed_precision_onednn_bfloat16": task.precision == "bf16"}
        tf.config.optimizer.set_experimental_options(bf16)
        return FRAMEWORK, emit(graph), FRAMEWORK.feeds(graph, task.feeds)


class PyTorch(Emitted):
    """A PyTorch module in channels last, frozen and compiled by inductor.

    With precision bf16, autocast chooses the operators that run in bf16.

    Source: PyTorch's manual: torch.compile, channels last, torch.autocast.
    """

    distribution = "torch"

    def build(self, graph: Graph, task: Task) -> tuple[Framework, Function, Mapping[str, Tensor]]:
        import torch

        from eval.peers.pytorch import FRAMEWORK, compiled, emit

        torch.set_num_threads(task.threads)
        last = torch.channels_last
        feeds = {
            name: x.to(memory_format=last) if x.dim() == 4 else x
            for name, x in FRAMEWORK.feeds(graph, task.feeds).items()
        }
        return FRAMEWORK, compiled(emit(graph), bf16=task.precision == "bf16"), feeds
