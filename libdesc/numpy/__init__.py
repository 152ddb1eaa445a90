"""NumPy: the definition of every operator, and of every transform."""
