"""Leave two files out of the doctests: importing them takes seconds, or their package is absent."""

collect_ignore = ["peers/pytorch.py", "peers/tensorflow.py"]
