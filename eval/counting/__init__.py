"""Lines of code: which lines of a file are code, and which of them belong to which operator."""
