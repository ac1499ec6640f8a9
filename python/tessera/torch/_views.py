"""Results that are views of an input, or of each other: PyTorch makes them, of memory that it or the model owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ._records import is_part


class Views:
    """Of a graph's results, those that are views which someone can tell from copies: of inputs, and several of one
    value. ``sources`` are the values that are no inputs and have to be there for them."""

    def __init__(self, module: torch.fx.GraphModule, results: Sequence[Any]) -> None:
        source = {result: _source(result) for result in results if _is_tensor(result)}
        shared = Counter(source.values())
        self.nodes = [result for result, of in source.items() if result is not of and _counts(of, shared) and _can_be_made(result, of)]
        self.sources = list(dict.fromkeys(source[node] for node in self.nodes if source[node].op != "placeholder"))
        self._module = _part(module, self.nodes, self.sources)
        self.lost = [result.name for result, of in source.items()
                     if result is not of and of.op == "placeholder" and result not in self.nodes]

    def __call__(self, inputs: Sequence[Any], sources: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return self._module(*inputs, *sources) if self.nodes else ()


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _is_view(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """The value whose memory this is."""
    while _is_view(node) or is_part(node) and _is_view(node.args[0]):
        node = node.args[0]
    return node


def _counts(source: torch.fx.Node, shared: Counter[torch.fx.Node]) -> bool:
    # What the model computes is dense; a view that another layout allows may not be one of it.
    return source.op == "placeholder" or shared[source] > 1 and _is_dense(source.meta["val"])


def _is_dense(tensor: torch.Tensor) -> bool:
    dense = sympy.Integer(1)
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        extent, step = (n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n) for n in (size, stride))
        if extent != 1 and sympy.expand(step - dense) != 0:
            return False
        dense *= extent
    return True


def _can_be_made(node: torch.fx.Node, source: torch.fx.Node) -> bool:
    """Whether nothing but views and sizes of inputs lies between."""
    if node is source or node.op == "placeholder":
        return True
    if node.op != "call_function" or (_is_tensor(node) and not (_is_view(node) or is_part(node))):
        return False
    return all(_can_be_made(operand, source) for operand in node.all_input_nodes)


def _part(module: torch.fx.GraphModule, results: Sequence[torch.fx.Node], sources: Sequence[torch.fx.Node]) -> torch.fx.GraphModule:
    """The graph from the inputs and the sources to the results."""
    part = torch.fx.Graph()
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    made = {node: part.placeholder(node.name) for node in [*inputs, *sources]}
    needed, wanted = set(), [node for node in results if node not in made]
    while wanted:
        node = wanted.pop()
        if node not in needed:
            needed.add(node)
            wanted += [operand for operand in node.all_input_nodes if operand not in made]
    for node in module.graph.nodes:
        if node in needed:
            made[node] = part.node_copy(node, lambda operand: made[operand])
    part.output(tuple(made[node] for node in results))
    return torch.fx.GraphModule(module, part)
