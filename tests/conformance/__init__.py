"""The conformance matrix: calls drawn from the registry, on every library, against NumPy in f64."""
