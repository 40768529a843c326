"""Residual blocks to heavy ball: x_{k+1} = T(x_k) + beta1 x_k + beta2 x_{k-1} (structure Eq. 16)."""

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node

from relucid.convert.conversion import Conversion, Ledger, Original, conversion
from relucid.convert.graph import (
    ADDS,
    Batch,
    ConversionError,
    add_module,
    fresh_name,
    is_reachable,
    kind_at,
    module_of,
    scope,
)

PUT_TOGETHER = {"narrow", torch.index_select, torch.mul, torch.add}  # the operations of `rewrite.apply`


class HeavyBallSum(nn.Module):
    """t + beta1 x + beta2 previous, with learned beta1 and beta2; initially t + x (structure Eq. 16).

    >>> HeavyBallSum()(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([4.0]))
    tensor([3.], grad_fn=<AddBackward0>)
    """

    weight_decay = False  # decay would pull the shortcut to nothing

    beta2: nn.Parameter | None

    def __init__(self, has_previous: bool = True) -> None:
        super().__init__()
        self.beta1 = nn.Parameter(torch.tensor(1.0))
        self.register_parameter("beta2", nn.Parameter(torch.tensor(0.0)) if has_previous else None)

    def forward(self, transformed: Tensor, x: Tensor, previous: Tensor | None = None) -> Tensor:
        """Return the next state; all states have one shape."""
        total, beta2 = transformed + self.beta1 * x, self.beta2
        return total if previous is None or beta2 is None else total + beta2 * previous


@conversion
def to_heavy_ball(model: nn.Module, example: Batch, *, tolerance: float | None = None) -> Conversion:
    """Return the same function with learned shortcuts to the last two states in place of y = f(x) + x.

    Every addition of a value and something computed from it is a residual block, whatever f is. Its state x_k gets a
    factor beta1 = 1. The state before it, x_{k-1}, which is the input of the block that made x_k, is added with
    beta2 = 0; the first block of a stage has none (x_{-1} = 0). Blocks that change the shape have no such addition and
    stay as they are. From there, training can reach HB-Net: beta1 = 1, beta2 = -1 (structure Eq. 11).

    Args:
        model: Any network with residual blocks.
        example: Its input: a tensor, a tuple of positional or a mapping of keyword arguments.
        tolerance: The largest relative difference of outputs; 1e-4 in float32, 1e-10 in float64 by default.

    >>> from relucid.models import create
    >>> conversion = to_heavy_ball(create("resnet20", num_classes=10), torch.randn(2, 3, 32, 32))
    >>> sum("beta2" in name for name, _ in conversion.model.named_parameters())
    4
    """
    original = Original(model, example)
    net = original.capture()
    ledger = Ledger(net, model, weighted="only additions change", relu="only additions change")
    states: dict[Node, Node] = {}  # by the addition that ends a block: the state that the block starts from
    for node in list(net.graph.nodes):
        block = _block(net, node)
        if block is None:
            continue
        transformed, x = block
        previous = states.get(_end(net, x))
        if previous is not None and _form(previous) != _form(x):
            previous = None
        new = _insert(net, node, transformed, x, previous)
        states[new] = x
        what = "beta1" if previous is None else "beta1 and beta2"
        ledger.add(str(new.target), "Addition", "changed", f"{what} are learned")
    if not states:
        raise ConversionError(f"{type(model).__name__} has no residual block y = f(x) + x of one shape")
    return original.finish(net, ledger, tolerance, rounded=False)


def _block(net: fx.GraphModule, node: Node) -> tuple[Node, Node] | None:
    """Return (f(x), x) for a node that adds them, else None."""
    if node.target not in ADDS or len(node.args) != 2 or node.kwargs:
        return None
    if not all(isinstance(n, Node) for n in node.args) or node.meta.get("fixed"):
        return None
    if _whole(net, node) is not node:
        return None
    a, b = (_origin(net, n) for n in node.args if isinstance(n, Node))
    if any(n.meta.get("aliased") or _form(n) is None or _form(n) != _form(node) for n in (a, b)):
        return None
    if is_reachable(_whole(net, b), a):
        return a, b
    return (b, a) if is_reachable(_whole(net, a), b) else None


def _form(node: Node) -> tuple[torch.Size, torch.dtype] | None:
    """Return the shape and dtype of a floating-point value, else None."""
    dtype = node.meta.get("dtype")
    return None if dtype is None or not dtype.is_floating_point else (node.meta["shape"], dtype)


def _origin(net: fx.GraphModule, node: Node) -> Node:
    """Return the node whose value reaches ``node`` through ``nn.Identity`` only."""
    while isinstance(module_of(net, node), nn.Identity):
        node = node.all_input_nodes[0]
    return node


def _whole(net: fx.GraphModule, node: Node) -> Node:
    """Return the CReLU whose phases a node combines to one value per unit; for other nodes, the node itself.

    `to_crelu` writes relu(x) as the first half of the channels, and other activations as a sum of both halves with
    factors.
    """
    found: set[Node] = set()
    stack = [node]
    while stack:
        part = stack.pop()
        kind = kind_at(net, part)
        if kind is not None and kind.doubled:
            found.add(part)
        elif part.target in PUT_TOGETHER and part.op in ("call_function", "call_method"):
            stack.extend(n for n in part.all_input_nodes if n.op != "get_attr")
        else:
            return node
    return found.pop() if len(found) == 1 else node


def _end(net: fx.GraphModule, x: Node) -> Node:
    """Return the addition that a state is, or whose rectification it is."""
    while kind_at(net, x := _whole(net, x)) is not None:
        x = x.all_input_nodes[0]
    return x


def _insert(net: fx.GraphModule, node: Node, transformed: Node, x: Node, previous: Node | None) -> Node:
    """Replace an addition by a `HeavyBallSum`, and return the new node."""
    name = fresh_name(net, f"{scope(node)}sum")
    add_module(net, name, HeavyBallSum(previous is not None).to(node.meta["device"], node.meta["dtype"]))
    args = (transformed, x) if previous is None else (transformed, x, previous)
    with net.graph.inserting_before(node):
        new = net.graph.call_module(name, args)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    net.graph.erase_node(node)
    return new
