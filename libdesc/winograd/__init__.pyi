from .depthwise import Depthwise as Depthwise
from .direct import Direct as Direct
from .direct import convolution as convolution
from .routine import Convolution as Convolution
from .routine import is_faster as is_faster
