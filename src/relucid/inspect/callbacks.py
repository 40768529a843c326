"""Callbacks that examine a network during training and log to the trainer's logger: Lightning and Hugging Face."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from relucid._torch import tree_map
from relucid.inspect._examine import examine
from relucid.inspect.examination import Examination
from relucid.inspect.execution import Batch
from relucid.inspect.measures import THOROUGH
from relucid.inspect.watch import LIMIT, LOGGER, warning

PREFIX = "relucid/"


def lightning_callback(
    example: Batch,
    data: Any = None,
    *,
    every: int = 1,
    measures: Collection[str] = THOROUGH,
    limit: float = LIMIT,
) -> Any:
    """A Lightning callback that examines the module every few epochs and logs with ``log_dict``.

    TensorBoard, W&B or any other logger of the trainer then shows the shares of units that are dead, dormant, always
    on and so on over training, and the ranks and norms of all layers. The callback's ``examination`` is the latest one.

    Args:
        example: An input of the network.
        data: Data to watch the units on, in any form that `examine` takes and that can be iterated more than once.
        every: Examine after every so many epochs.
        measures: As for `examine`.
        limit: Share of dead units above which to warn, in the logger "relucid".
    """
    from lightning.pytorch import Callback

    _check(every)

    class Examine(Callback):
        """Callback that examines after every so many epochs."""

        examination: Examination | None = None

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero and (trainer.current_epoch + 1) % every == 0:
                self.examination = _examined(pl_module, example, data, measures, limit)
                pl_module.log_dict(_prefixed(self.examination), rank_zero_only=True)

    return Examine()


def hugging_face_callback(
    trainer: Any,
    example: Batch,
    data: Any = None,
    *,
    every: int = 1,
    measures: Collection[str] = THOROUGH,
    limit: float = LIMIT,
) -> Any:
    """A callback for ``trainer.add_callback`` that examines every few epochs and logs with ``trainer.log``.

    Args:
        trainer: A ``transformers.Trainer``.
        example: An input of the network, usually a mapping of arguments.
        data: Data to watch the units on, in any form that `examine` takes and that can be iterated more than once.
        every: Examine after every so many epochs.
        measures: As for `examine`.
        limit: Share of dead units above which to warn, in the logger "relucid".
    """
    from transformers import TrainerCallback

    _check(every)

    class Examine(TrainerCallback):
        """Callback that examines after every so many epochs."""

        examination: Examination | None = None

        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.is_world_process_zero and round(state.epoch) % every == 0:
                self.examination = _examined(model, example, data, measures, limit)
                trainer.log(_prefixed(self.examination))

    return Examine()


def _check(every: int) -> None:
    if every < 1:
        raise ValueError(f"every must be at least 1 epoch; got {every}")


def _examined(
    model: nn.Module, example: Batch, data: Any, measures: Collection[str], limit: float
) -> Examination:
    """Examine a network on its device, and warn if the share of dead units has passed the limit."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    example = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, example)
    found = examine(model, example, data, measures=measures)
    if message := warning(found, limit):
        LOGGER.warning(message)
    return found


def _prefixed(found: Examination) -> dict[str, float]:
    return {PREFIX + name: value for name, value in found.metrics().items()}
