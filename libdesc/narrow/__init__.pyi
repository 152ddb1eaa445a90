from .blockwise import BlockProduct as BlockProduct
from .blockwise import BlockRows as BlockRows
from .convolutions import Convolution as Convolution
from .products import MatMul as MatMul
from .recurrence import dynamic_lstm as dynamic_lstm
