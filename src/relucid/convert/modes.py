"""One graph for a network that computes more in one mode: heads for training, say, or a softmax for evaluation.

Both modes have been traced. What both compute is computed once. What only one computes is computed in both, so it must
not have an effect in the other, and the output is chosen by the mode.
"""

from collections.abc import Iterator
from dataclasses import replace

from torch import fx, nn
from torch.fx.node import Node

from relucid.convert.graph import add_module, fresh_name
from relucid.convert.network import ByMode
from relucid.convert.normal import memory_of
from relucid.convert.tracer import Decision
from relucid.convert.traces import NoGraphError, Trace, signature


def join(model: nn.Module, evaluation: Trace, training: Trace) -> tuple[dict[Node, Node], list[Decision]]:
    """Add what only training computes to the graph of evaluation, or raise `NoGraphError`.

    Args:
        model: The network, which gets a `ByMode` if the modes differ.
        evaluation: Its trace in evaluation, whose graph is changed.
        training: Its trace in training, on the same example.

    Returns:
        For each node that both modes compute, training's own node; and the decisions that only training makes.
    """
    shared = _shared(model, evaluation, training)
    _check(evaluation, training, shared)
    images = {other: node for node, other in shared.items()}
    if len(shared) == len(evaluation.graph.nodes) == len(training.graph.nodes):
        return shared, []
    only = [decision for decision in training.decisions if decision.node not in images]
    _add(evaluation, training, images)
    _choose(model, evaluation.graph, training.graph, images)
    return shared, [replace(decision, node=images[decision.node]) for decision in only]


def _shared(model: nn.Module, evaluation: Trace, training: Trace) -> dict[Node, Node]:
    """Return training's node for each node of evaluation that it computes too, both in order.

    Raise `NoGraphError` at the first node that training does not compute and must not: one with weights, say.
    """
    found: dict[Node, Node] = {}
    images: dict[Node, Node] = {}
    others, start = list(training.graph.nodes), 0
    for node in evaluation.graph.nodes:
        own = signature(node, evaluation)
        for place in range(start, len(others)):
            other = others[place]
            known = all(n in images for n in other.all_input_nodes)
            if known and signature(other, training, images) == own:
                found[node], images[other], start = other, node, place + 1
                break
        else:
            _check_harmless(model, node)
    return found


def _check_harmless(model: nn.Module, node: Node) -> None:
    """Raise unless what only evaluation computes can be computed, and thrown away, in training."""
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else nn.Identity()
    if node.meta.get("mutates") or [*module.parameters(), *module.buffers()]:
        reason = f"computes {node.name} in evaluation only, which changes a value or has weights"
        raise NoGraphError("", f"{reason}: it is not one graph")


def _check(evaluation: Trace, training: Trace, shared: dict[Node, Node]) -> None:
    """Raise unless what only training computes can be computed, and thrown away, in evaluation."""
    same = set(shared.values())
    lasting = [node for node in training.graph.nodes if node in same or node.op == "get_attr"]
    memory = {place for node in lasting for place in memory_of(node)}
    for node in _only(training, same):
        if any(memory & memory_of(x) for x in node.meta.get("mutates", ())):
            reason = f"changes a value in place in training only ({node.name})"
            raise NoGraphError("", f"{reason}: it is not one graph")
    decided = {decision.node: decision for decision in training.decisions}
    for decision in evaluation.decisions:
        other = decided.get(shared[decision.node]) if decision.node in shared else None
        if other is not None and other.value != decision.value:
            reason = f"decides otherwise in training than in evaluation at {decision.line}"
            raise NoGraphError(decision.module, f"{reason}: it is not one graph")


def _only(trace: Trace, shared: set[Node]) -> Iterator[Node]:
    """Yield the nodes that compute something in one mode only."""
    return (node for node in trace.graph.nodes if node not in shared and node.op != "output")


def _add(evaluation: Trace, training: Trace, images: dict[Node, Node]) -> None:
    """Copy the nodes that only training has, each to where training computes it, and enter them in ``images``."""
    graph, tracer, shared = evaluation.graph, evaluation.tracer, set(images)
    last = next(iter(graph.nodes))
    for node in training.graph.nodes:
        if node in shared:
            last = images[node]
        elif node.op != "output":
            with graph.inserting_after(last):
                last = images[node] = graph.node_copy(node, lambda n: images[n])
            last.meta["mutates"] = [images[n] for n in node.meta.get("mutates", ())]
            if node.op == "get_attr" and str(node.target) in training.tracer.constants:
                last.target = f"constant_{len(tracer.constants)}"
                tracer.constants[last.target] = training.tracer.constants[str(node.target)]
    tracer.norms.update({k: norm for k, norm in training.tracer.norms.items() if k not in tracer.norms})


def _choose(model: nn.Module, graph: fx.Graph, training: fx.Graph, images: dict[Node, Node]) -> None:
    """Let a graph return its output in evaluation, and what ``training`` returns in training."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    (other,) = (node for node in training.nodes if node.op == "output")
    name = fresh_name(model, "by_mode")
    add_module(model, name, ByMode())
    wanted = fx.node.map_arg(other.args[0], lambda n: images[n])
    with graph.inserting_before(output):
        chosen = graph.create_node(
            "call_module", name, (), {"training": wanted, "evaluation": output.args[0]}
        )
    output.args = (chosen,)
