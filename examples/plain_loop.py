"""A plain PyTorch loop, with standard and with geometric layers; a tracker watches the units' boundaries.

python examples/plain_loop.py
"""

import torch
from torch import nn

from relucid.data import digits
from relucid.inspect import BoundaryTracker
from relucid.nn import GeometricLinear, parameter_groups

HIDDEN = {
    "standard": lambda: nn.Sequential(nn.Linear(64, 50), nn.ReLU()),
    "geometric": lambda: GeometricLinear(64, 50, activation=nn.ReLU()),
}


def main(epochs: int = 10) -> None:
    data = digits()
    x, x_test = data.train.inputs / 16, data.test.inputs / 16
    for name, hidden in HIDDEN.items():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), hidden(), nn.Linear(50, 10))
        optimizer = torch.optim.Adam(parameter_groups(net, weight_decay=1e-4), lr=0.01)
        tracker = BoundaryTracker(net, x[:1]).attach(optimizer)  # or call tracker.step() yourself
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[batch]), data.train.targets[batch]).backward()
                optimizer.step()
        wrong = net(x_test).argmax(1) != data.test.targets
        print(f"{name}: test error {100 * wrong.double().mean():.1f} %")
        print(f"  layer {tracker.result().summary()}")


if __name__ == "__main__":
    main()
