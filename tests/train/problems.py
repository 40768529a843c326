"""Small trainings that the tests run, in their own process or in others."""

import torch
from torch import nn

from relucid.data import Split
from relucid.nn import MeanNorm
from relucid.train import Recipe


def small_images(count: int = 60, seed: int = 1, size: int = 6) -> Split:
    """Bright images of one class, dark ones of the other, with noise."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (count,), generator=generator)
    noise = torch.randint(0, 150, (count, 3, size, size), generator=generator)
    return Split((noise + 100 * targets.view(-1, 1, 1, 1)).to(torch.uint8), targets)


def small_network(seed: int = 0) -> nn.Sequential:
    """With everything that has a state or is random: batch norm and dropout."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 2)
    )


def mean_norm_network(seed: int = 0) -> nn.Sequential:
    """In float64, and without anything that depends on how a batch is divided but for the norm."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 4, 3), MeanNorm(4, bias=True), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)]
    return nn.Sequential(*layers).double()


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether two networks have the same weights and buffers, bit for bit."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(a.equal(b) for a, b in pairs)


PLAIN = Recipe(epochs=6, batch_size=16, lr=0.05, weight_decay=1e-3, steps=(0.5,), augment=("flip", "crop"))
PLATEAU = Recipe(epochs=30, batch_size=16, optimizer="adam", lr=0.01, patience=2, stop=4, monitor="val_loss")
