"""Models that are built in Python, without a file.

    import numpy as np, tessera
    from tessera import graph

    g = graph.Graph("classifier")
    n = g.symbol("n", 1, 64)
    x = g.input("x", np.float32, (n, 784))
    y = graph.softmax(x @ weights + bias, axis=1)      # weights and bias: numpy arrays
    g.output("y", y)
    model = tessera.compile(g)

There is a function for each of the compiler's operators; :func:`operators` lists them. ``Graph.op`` takes any of them
by name. The same in C++ is tessera/graph.h; docs/graph-api.md shows more.
"""

from ._graph import Attribute, Graph, Operator, Value, functions, operators

__all__ = ["Attribute", "Graph", "Operator", "Value", "operators", *functions()]

globals().update(functions())
del functions
