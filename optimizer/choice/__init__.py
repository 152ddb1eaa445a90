"""The choice of each node's variant: the candidates, their costs, the integer program, and what its
result proves.
"""
