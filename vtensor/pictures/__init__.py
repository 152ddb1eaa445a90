"""Pictures of plans: a lowered graph as an SVG picture, or as a page that folds and searches it.

``scene`` reads the graph, ``layered`` places its nodes, ``svg`` draws them, and ``page`` makes one
HTML file that loads no other.
"""
