"""The constants of a model: the originals, those computed from others, and observed values."""
