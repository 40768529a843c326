"""Layers of relucid in a Lightning module, and a tracker as its callback.

python examples/lightning_module.py
"""

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from relucid.data import digits
from relucid.inspect import BoundaryTracker
from relucid.nn import CReLU, GeometricConv2d, MeanNorm, parameter_groups


class Digits(L.LightningModule):
    """A small convolutional network with geometric weights, input means taken off, and both phases kept."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            GeometricConv2d(1, 8, 3, activation=CReLU()),
            MeanNorm(16),
            GeometricConv2d(16, 16, 3, activation=CReLU()),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 10),
        )

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The loss of a batch."""
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def test_step(self, batch: list[Tensor]) -> None:
        """The share of a batch that is wrong."""
        x, y = batch
        self.log("error", (self.net(x).argmax(1) != y).double().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Weight decay spares directions, offsets and scales."""
        return torch.optim.Adam(parameter_groups(self, weight_decay=1e-4), lr=0.01)


class Boundaries(L.Callback):
    """Watches how far boundaries move at each step."""

    def on_train_start(self, trainer: L.Trainer, module: Digits) -> None:
        """Look at them before the first step."""
        self.tracker = BoundaryTracker(module.net)

    def on_train_batch_end(self, *_: object) -> None:
        """Look at them again."""
        self.tracker.step()


def main(epochs: int = 5) -> None:
    L.seed_everything(0, verbose=False)
    data = digits()
    train, test = (TensorDataset(part.inputs / 16, part.targets) for part in (data.train, data.test))
    boundaries = Boundaries()
    trainer = L.Trainer(
        max_epochs=epochs,
        callbacks=[boundaries],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    module = Digits()
    trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True))
    (found,) = trainer.test(module, DataLoader(test, batch_size=500), verbose=False)
    print(f"test error {100 * found['error']:.1f} %")
    print(boundaries.tracker.result().summary())


if __name__ == "__main__":
    main()
