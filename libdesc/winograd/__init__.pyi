from .depthwise import Depthwise as Depthwise
from .routine import Convolution as Convolution
