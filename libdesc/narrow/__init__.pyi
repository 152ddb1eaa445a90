from .blockwise import BlockProduct as BlockProduct
from .blockwise import BlockRows as BlockRows
