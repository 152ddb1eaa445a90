"""Files of models: their bytes, external data, fingerprints, and what the cache keeps of them."""
