"""Which files have no examples to run: importing these two takes seconds, or is not possible."""

collect_ignore = ["peers/pytorch.py", "peers/tensorflow.py"]
