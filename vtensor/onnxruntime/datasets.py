"""``onnxruntime.datasets`` of the installed package."""

import sys

from vtensor.onnxruntime.real_package import passed

sys.modules[__name__] = passed("datasets")
