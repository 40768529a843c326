"""A progress bar over the epochs of a training, with the time left."""

from typing import Any

import lightning as L
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Bar(L.Callback):
    """One line: epoch, bar, last loss and error, time so far and time left."""

    def __init__(self) -> None:
        columns = ("epoch {task.completed:.0f}/{task.total}", "{task.description}")
        self.bar = Progress(
            TextColumn(columns[0]),
            BarColumn(),
            TextColumn(columns[1]),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            transient=True,
        )
        self.task = self.bar.add_task("", total=None)

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Show the bar, in the first process only."""
        self.bar.disable = not trainer.is_global_zero
        self.bar.update(self.task, total=trainer.max_epochs, completed=trainer.current_epoch)
        self.bar.start()

    def on_train_batch_end(self, trainer: L.Trainer, module: L.LightningModule, *batch: Any) -> None:
        """Advance the bar within an epoch."""
        share = (batch[-1] + 1) / trainer.num_training_batches
        self.bar.update(self.task, completed=trainer.current_epoch + share)

    def on_train_epoch_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Update the bar."""
        found = trainer.callback_metrics
        shown = [name for name in ("train_loss", "val_error", "val_mse") if name in found]
        self.bar.update(self.task, description=", ".join(f"{name} {found[name]:.4g}" for name in shown))

    def on_train_end(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Remove the bar."""
        self.bar.stop()

    def on_exception(self, trainer: L.Trainer, module: L.LightningModule, exception: BaseException) -> None:
        """Remove the bar."""
        self.bar.stop()
