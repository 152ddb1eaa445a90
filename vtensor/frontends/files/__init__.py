"""Files of models: their bytes, external data and fingerprints, and what the cache holds of
them.
"""
