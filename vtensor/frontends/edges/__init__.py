"""What a model does outside of arrays: texts, sequences, optional values and maps at its ends."""
