"""A seeded fuzz: models and inputs are changed at random and run in processes of their own.

``python -m tests.fuzz --minutes 20 --seed 1`` counts what became of them and saves each crash, hang
and untyped error with the command that repeats it.
"""
