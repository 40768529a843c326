"""A `Watch` as a callback of Lightning and of Hugging Face's trainer, which logs to the trainer's logger."""

from __future__ import annotations

from typing import Any

from relucid.inspect.watch import Watch

NAME = "relucid"


def lightning_callback(**options: Any) -> Any:
    """A Lightning callback that watches the module and logs with ``log_dict``, under names like "relucid/dead".

    Args:
        options: Those of `Watch`: ``every`` so many steps, ``data``, ``layers``, ``policy``, ``act`` and so on. The
            callback's ``watch`` is the `Watch`.
    """
    from lightning.pytorch import Callback

    class WatchCallback(Callback):
        """Callback that counts the steps of a `Watch`."""

        watch: Watch | None = None
        state: dict[str, Any] | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            def log(metrics: Any, step: int) -> None:
                pl_module.log_dict(dict(metrics), rank_zero_only=True)

            settings: dict[str, Any] = {"name": NAME, "log": log} | options
            self.watch = Watch(pl_module, **settings)
            if self.state is not None:
                self.watch.load_state_dict(self.state)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if self.watch is not None and trainer.global_step > self.watch.time:
                self.watch.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.watch is not None:
                self.watch.detach()

        def state_dict(self) -> dict[str, Any]:
            return {} if self.watch is None else self.watch.state_dict()

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.state = state_dict or None

    return WatchCallback()


def hugging_face_callback(trainer: Any, **options: Any) -> Any:
    """A callback for ``trainer.add_callback`` that watches the model and logs with ``trainer.log``.

    Args:
        trainer: A ``transformers.Trainer``.
        options: Those of `Watch`: ``every`` so many steps, ``data``, ``layers``, ``act`` and so on. The callback's
            ``watch`` is the `Watch`.
    """
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):
        """Callback that counts the steps of a `Watch`."""

        watch: Watch | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            def log(metrics: Any, step: int) -> None:
                trainer.log(dict(metrics))

            settings: dict[str, Any] = {"name": NAME, "log": log} | options
            self.watch = Watch(model, **settings)
            self.watch.load_state_dict({"time": state.global_step, "reported": []})

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.watch is not None:
                self.watch.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.watch is not None:
                self.watch.detach()

    return WatchCallback()
