from .convolutions import Convolution as Convolution
from .products import MatMul as MatMul
from .blockwise import BlockProduct as BlockProduct
from .blockwise import BlockRows as BlockRows
