"""Pictures of plans: a lowered graph as an SVG picture, or as a page that can be folded and
searched.

``scene`` reads the graph, ``layered`` places its nodes, ``svg`` draws them, and ``page`` makes one
HTML file that loads no other.
"""
