"""The commands of ``vtensor``, and their common options and output."""
