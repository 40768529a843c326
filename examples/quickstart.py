"""Train the same small network four ways on handwritten digits and compare their test errors.

The units are the only difference: ReLU, CReLU with half the filters, geometric parameterization with input
mean normalization, and both together.
"""

import statistics

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from relucid.nn import CReLU, GeometricLinear, MeanNorm, parameter_groups

Split = tuple[Tensor, Tensor, Tensor, Tensor]

NETWORKS = {
    "ReLU": lambda: nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    ),
    "CReLU, half the filters": lambda: nn.Sequential(
        nn.Linear(64, 32), CReLU(), nn.Linear(64, 32), CReLU(), nn.Linear(64, 10)
    ),
    "geometric, IMN": lambda: nn.Sequential(
        GeometricLinear(64, 64, activation=nn.ReLU()),
        *(MeanNorm(64), GeometricLinear(64, 64, activation=nn.ReLU())),
        *(MeanNorm(64), nn.Linear(64, 10)),
    ),
    "geometric, IMN, CReLU": lambda: nn.Sequential(
        GeometricLinear(64, 32, activation=CReLU()),
        *(MeanNorm(64), GeometricLinear(64, 32, activation=CReLU())),
        *(MeanNorm(64), nn.Linear(64, 10)),
    ),
}


def digits(seed: int) -> Split:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        torch.tensor(images / 16, dtype=torch.float32),
        torch.tensor(labels),
        test_size=0.3,
        random_state=seed,
        stratify=labels,
    )
    return tuple(parts)


def error_rate(net: nn.Module, split: Split, epochs: int = 30) -> float:
    """The share of test digits that the network gets wrong after training, in percent."""
    x, x_test, y, y_test = split
    optimizer = torch.optim.Adam(parameter_groups(net, weight_decay=1e-4), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        return 100 * (net(x_test).argmax(1) != y_test).float().mean().item()


def main(seeds: int = 3) -> None:
    print(f"test error on handwritten digits, mean and standard error over {seeds} splits")
    for name, build in NETWORKS.items():
        errors = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            errors.append(error_rate(build(), digits(seed)))
        parameters = sum(p.numel() for p in build().parameters())
        error = statistics.stdev(errors) / seeds**0.5
        print(f"  {name:24} {statistics.mean(errors):5.2f} % ± {error:.2f}   {parameters:6,} parameters")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are small
    main()
