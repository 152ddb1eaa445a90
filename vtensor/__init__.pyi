from . import errors as errors
from .frontends.arrays import from_array as from_array
from .frontends.arrays import from_dlpack as from_dlpack
from .frontends.export import save_onnx as save_onnx
from .frontends.onnx import load_onnx as load_onnx
from .frontends.tensors import from_proto as from_proto
from .isa import limit_isa as limit_isa
from .language.graph import Graph as Graph
from .language.headers import get_include as get_include
from .language.tensor import VTensor as VTensor
from .runtime.call import call as call
from .runtime.session import Session as Session

__version__: str
