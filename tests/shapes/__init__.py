"""The proof that plans for new sizes are what plans of their own are; see ``proof.py``."""
