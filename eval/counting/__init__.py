"""The count of lines of code: which lines of a file are code, and which belong to an operator."""
