"""HB-Net with 1000 layers, trained with activations whose memory does not grow with their number.

python examples/thousand_layers.py
"""

import torch
from torch import Tensor, nn

from relucid.data import digits
from relucid.nn import Propagation


def layer(channels: int) -> nn.Sequential:
    """T: small at first, so that the thousand of them do not add up to something huge."""
    linear = nn.Linear(channels, channels)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(nn.LayerNorm(channels), nn.ReLU(), linear)


def stored(net: nn.Module, x: Tensor) -> float:
    """The megabytes that a forward pass keeps for the backward pass, weights left out."""
    weights = {p.data_ptr() for p in net.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = net(x).sum()
    del loss
    return sum(kept.values()) / 1e6


def main(depth: int = 1000, steps: int = 15) -> None:
    data = digits()
    x, x_test = data.train.inputs.flatten(1) / 16, data.test.inputs.flatten(1) / 16
    torch.manual_seed(0)
    stage = Propagation([layer(64) for _ in range(depth)], "heavy_ball", reversible=True)
    net = nn.Sequential(stage, nn.LayerNorm(64), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(steps):
        batch = torch.randint(len(x), (256,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[batch]), data.train.targets[batch])
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1}: training loss {loss:.3f}")
    with torch.no_grad():
        wrong = net(x_test).argmax(1) != data.test.targets
    print(f"{depth} layers: test error {100 * wrong.double().mean():.1f} %")
    reversible = stored(net, x[:128])
    stage.reversible = False
    print(
        f"kept for the backward pass: {reversible:.1f} MB, without reversibility {stored(net, x[:128]):.1f} MB"
    )


if __name__ == "__main__":
    main()
