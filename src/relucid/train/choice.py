"""Which engine a network is trained with: the one asked for where the network takes it, or the fastest."""

import json
import statistics
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from relucid.data import Examples, Moments
from relucid.train.batches import are_numbers
from relucid.train.engine import CONTIGUOUS, Engine, lay_out, suited
from relucid.train.measure import measures
from relucid.train.recipe import Recipe
from relucid.train.resources import Machine

Step = Callable[[], float]


def chosen(
    network: nn.Module,
    train: Examples,
    recipe: Recipe,
    moments: Moments,
    machine: Machine,
    device: torch.device,
) -> Engine:
    """The engine that the machine asks for, or the nearest one that suits the network.

    The choice depends on the network, the data and the machine alone, except for "measure", which times the engines.
    That choice is kept beside the checkpoint, so that resumed training uses the same engine.
    """
    if machine.engine is None and device.type != "cpu":
        return CONTIGUOUS  # that channels-last is faster has been measured on CPUs

    def examples(count: int) -> tuple[Tensor, Tensor]:
        inputs, targets = train.batch(torch.arange(min(count, len(train))))
        if not are_numbers(inputs):
            return inputs, targets
        return moments.normalize(inputs).to(next(network.parameters()).dtype), targets

    if machine.engine != "measure":
        return suited(machine.engine or Engine(), network, examples(2)[0])
    kept = machine.directory and machine.directory / "engine.json"
    if kept and kept.exists():
        return Engine(**json.loads(kept.read_text()))
    layouts = {suited(Engine(), network, examples(2)[0]), CONTIGUOUS}
    engines = [Engine(each.memory_format, compiled) for each in layouts for compiled in (False, True)]
    batch = examples(recipe.batch_size or len(train))
    inputs, targets = (tensor.to(device) for tensor in batch)
    found = fastest(partial(_step, network.to(device), recipe, inputs, targets), engines)
    if kept:
        _write(kept, found)
    return found


def fastest(step: Callable[[Engine], Step], engines: Iterable[Engine], repeats: int = 5) -> Engine:
    """The engine with the shortest median time per step; their steps are timed in turn.

    Args:
        step: makes the step of an engine; an engine is left out if its step raises (without a C++ compiler, say).
        engines: what there is to choose from.
        repeats: rounds, after one that does not count.
    """
    steps = {engine: each for engine in engines if (each := _working(step, engine))}
    seconds: dict[Engine, list[float]] = {engine: [] for engine in steps}
    for _ in range(repeats):
        for engine, each in steps.items():
            begin = time.perf_counter()
            each()
            seconds[engine].append(time.perf_counter() - begin)
    return min(seconds, key=lambda engine: statistics.median(seconds[engine]), default=CONTIGUOUS)


def _working(step: Callable[[Engine], Step], engine: Engine) -> Step | None:
    try:
        made = step(engine)
        made()
    except Exception:  # if even the contiguous step fails, training will raise the same error
        return None
    return made


def _step(network: nn.Module, recipe: Recipe, inputs: Tensor, targets: Tensor, engine: Engine) -> Step:
    """A function that takes a training step on a copy of the network and returns the loss."""
    copy = deepcopy(network).train()
    if engine.memory_format == "channels_last":
        lay_out(copy, torch.channels_last)
    predict, optimizer, images = engine.compiled(copy), recipe.make_optimizer(copy), engine.arrange(inputs)

    def step() -> float:
        optimizer.zero_grad()
        loss = measures(recipe.loss, predict(images), targets)["loss"]
        loss.backward()
        optimizer.step()
        return loss.item()  # waits for a device that computes in the background

    return step


def _write(kept: Path, engine: Engine) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(engine)))
