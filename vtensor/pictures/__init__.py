"""Pictures of plans: a lowered graph drawn as SVG, and a page on which it folds and is searched.

``scene`` reads the graph, ``layered`` places it, ``svg`` draws it, ``page`` puts it into one HTML
file that loads nothing.
"""
