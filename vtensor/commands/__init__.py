"""The commands of ``vtensor``, and what they share."""
