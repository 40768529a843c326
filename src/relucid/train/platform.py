"""The device, the processes and the precision of a training, in plain torch."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from relucid._torch import tree_map_only
from relucid.train.resources import Machine, Precision

HALF: dict[str, torch.dtype] = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


@dataclass(frozen=True)
class Platform:
    """One process of a training: where it computes, its place among the others, and how it rounds."""

    device: torch.device
    rank: int = 0
    world: int = 1
    half: torch.dtype | None = None  # of what autocast rounds
    scaler: torch.amp.GradScaler = field(default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False))

    @classmethod
    def of(cls, machine: Machine, precision: Precision) -> "Platform":
        """The platform that a machine asks for; several devices take processes started by torchrun."""
        rank, world = 0, machine.devices * machine.nodes
        device = _device(machine.accelerator)
        if world > 1:
            rank = _joined(world)
            if device.type == "cuda":
                device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
                torch.cuda.set_device(device)
        _check_precision(device, precision)
        scaler = torch.amp.GradScaler(device.type, enabled=precision == "16-mixed")
        return cls(device, rank, world, HALF.get(precision), scaler)

    def distributed(self, network: nn.Module) -> nn.Module:
        """The network as it is trained: with several processes, gradients are averaged over them."""
        return network if self.world == 1 else DistributedDataParallel(network)

    def outputs(self, network: nn.Module, inputs: Any) -> Any:
        """What the network returns, computed as the precision says, with nothing in half precision."""
        if self.half is None:
            return network(inputs)
        with torch.autocast(self.device.type, self.half):
            outputs = network(inputs)
        return tree_map_only(Tensor, lambda x: x.float() if x.dtype == self.half else x, outputs)

    def step(
        self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None
    ) -> None:
        """Step along the gradient of the loss, shortened to the length `clip`."""
        optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if clip is not None:  # the end of the epoch refuses a loss that is not finite
            self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        self.scaler.step(optimizer)
        self.scaler.update()

    def moved(self, value: Any) -> Any:
        """Tensors, in any container, on the device."""
        return tree_map_only(Tensor, lambda tensor: tensor.to(self.device, non_blocking=True), value)

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def gathered(self, value: Tensor) -> Tensor:
        """The values of all processes, one under the other."""
        values = [value]
        if self.world > 1:
            values = [torch.empty_like(value) for _ in range(self.world)]
            dist.all_gather(values, value)
        return torch.stack(values)

    def share_first(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the values of the first one."""
        for tensor in tensors if self.world > 1 else ():
            dist.broadcast(tensor, 0)


def _device(accelerator: str) -> torch.device:
    if accelerator in ("auto", "gpu"):
        device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if device is None and accelerator == "gpu":
            raise ValueError("accelerator='gpu' finds none here: take 'cpu', or 'auto' for whatever there is")
        return device or torch.device("cpu")
    try:
        device = torch.device(accelerator)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        known = "'auto', 'cpu', 'gpu', or a device's type as torch names it"
        raise ValueError(f"accelerator={accelerator!r} cannot be used here: take {known}") from error
    return device


def check(machine: Machine) -> None:
    """Refuse, before anything is trained, a machine that this computer cannot be."""
    machine.check_workers()
    if machine.precision is not None:
        _check_precision(_device(machine.accelerator), machine.precision)


def _check_precision(device: torch.device, precision: str) -> None:
    """Refuse a precision in which the device does not multiply matrices."""
    dtype, half = torch.float64 if precision == "64-true" else torch.float32, HALF.get(precision)
    try:
        ones = torch.ones(2, 2, dtype=dtype, device=device)
        with torch.autocast(device.type, half, enabled=half is not None):
            able = (ones @ ones).dtype == (half or dtype)
        emulated = device.type == "cuda" and half == torch.bfloat16
        able &= not emulated or torch.cuda.is_bf16_supported(including_emulation=False)
    except (RuntimeError, TypeError):
        able = False
    if not able:
        raise ValueError(f"precision {precision!r} cannot be used on {device}: take '32-true'")


def _joined(world: int) -> int:
    """Join the group of processes; return this one's rank."""
    if not dist.is_initialized():
        if "RANK" not in os.environ:
            raise ValueError(f"{world} devices take {world} processes: start this with torchrun")
        dist.init_process_group("cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo")
    if dist.get_world_size() != world:
        raise ValueError(f"there are {dist.get_world_size()} processes for {world} devices: start as many")
    return dist.get_rank()
