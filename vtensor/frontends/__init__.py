"""Model formats in and out: a model as a ``Graph``, and a ``Graph`` as a model."""
