"""The constants of a model: the originals, the constants that passes compute from them, and the
values at which errors are measured.
"""
