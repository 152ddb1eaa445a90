from .convolutions import Convolution as Convolution
from .products import MatMul as MatMul
