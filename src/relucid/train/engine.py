"""How a network's steps are computed: the memory layout of its images, and compilation; noted for those who ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from relucid._torch import DispatchMode
from relucid.memory import memory_is_kept
from relucid.train.batches import are_numbers

MemoryFormat = Literal["channels_last", "contiguous"]


@dataclass(frozen=True)
class Engine:
    """How steps are computed; the same engine gives the same bits, another one differs by rounding.

    Dropout of images fills its mask in the order of memory, so that channels-last it drops other pixels.

    Args:
        memory_format: "channels_last" keeps the channels of a pixel together, "contiguous" the pixels of a channel.
        compile: compile the network with `torch.compile`, which takes a C++ compiler and a minute or two.
    """

    memory_format: MemoryFormat = "channels_last"
    compile: bool = False

    def __post_init__(self) -> None:
        if self.memory_format not in get_args(MemoryFormat):
            known = " or ".join(get_args(MemoryFormat))
            raise ValueError(f"memory_format={self.memory_format!r} must be {known}")

    def __str__(self) -> str:
        return f"{self.memory_format.replace('_', '-')}, {'' if self.compile else 'not '}compiled"

    def arrange(self, images: Tensor) -> Tensor:
        """Put images (N, C, H, W) into the engine's memory format; leave anything else as it is."""
        last = self.memory_format == "channels_last" and images.dim() == 4
        return images.contiguous(memory_format=torch.channels_last) if last else images

    def compiled(self, network: nn.Module) -> nn.Module:
        """The network, compiled if the engine says so; both share the same parameters."""
        if not self.compile:
            return network
        options: dict[str, Any] = {"fallback_random": True}  # dropout draws what it draws without compilation
        if torch.backends.cpu.get_cpu_capability() == "AVX512":
            options["cpp.simdlen"] = 256  # few channels leave the wider registers half empty
        return cast(nn.Module, torch.compile(network, dynamic=False, options=options))

    @contextmanager
    def holding(self, network: nn.Module) -> Iterator[None]:
        """Keep the network's weights in the engine's memory format, and make them contiguous again afterwards."""
        if self.memory_format == "contiguous":
            yield
            return
        lay_out(network, torch.channels_last)
        try:
            yield
        finally:
            lay_out(network, torch.contiguous_format)


CONTIGUOUS = Engine("contiguous")


def lay_out(network: nn.Module, memory_format: torch.memory_format) -> nn.Module:
    """Give a network's 4-D parameters and buffers this memory format, and return the network."""
    changed: nn.Module = cast(Any, network).to(memory_format=memory_format)  # torch declares no such argument
    return changed


def suited(engine: Engine, network: nn.Module, images: Any) -> Engine:
    """The engine, or its contiguous counterpart if channels-last gains nothing or does not work.

    It gains nothing without convolutions. It does not work in networks that call `view` on images in that format,
    and not safely in a convolution that oneDNN gets wrong. A trial step on a copy of the network decides.

    Args:
        engine: the one asked for.
        network: as it is before training.
        images: two examples as the network takes them.
    """
    if engine.memory_format == "channels_last" and not _takes_channels_last(network, images):
        return Engine("contiguous", engine.compile)
    return engine


def _takes_channels_last(network: nn.Module, images: Any) -> bool:
    if not are_numbers(images) or images.dim() != 4:
        return False
    with torch.random.fork_rng(devices=[]):
        try:
            copy = lay_out(deepcopy(network).train(), torch.channels_last)
            with _Convolutions() as seen:
                outputs = copy(Engine().arrange(images))
            if not seen.count or seen.unsafe:
                return False
            outputs.sum().backward()
        except Exception:  # if the layout is not to blame, training will raise it again
            return False
    return True


class _Convolutions(DispatchMode):
    """Counter of 2-D convolutions, which also notes an unsafe one."""

    count, unsafe = 0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution.default and args[1].dim() == 4:
            self.count += 1
            self.unsafe |= _is_unsafe(weight=args[1], stride=args[3])
        return func(*args, **(kwargs or {}))


def _is_unsafe(weight: Tensor, stride: list[int]) -> bool:
    # The gradient of a strided 1x1 convolution's weight is written past the end of its buffer where the input is
    # channels-last and has fewer channels than a vector register of AVX2 has numbers (oneDNN issue 6035).
    return tuple(weight.shape[2:]) == (1, 1) and max(stride) > 1 and weight.shape[1] < 8


@dataclass(frozen=True)
class Computed:
    """How a training was computed: by which engine, in which precision, and whether freed memory was kept."""

    engine: Engine
    precision: str
    kept: bool  # see `keep_memory`

    def __str__(self) -> str:
        return f"{self.engine}, freed memory {'kept' if self.kept else 'returned'}"


_listening: ContextVar[list[Computed] | None] = ContextVar("listening", default=None)


@contextmanager
def noting() -> Iterator[list[Computed]]:
    """A list that fills with how everything that is trained within the context is computed, each way once."""
    notes: list[Computed] = []
    token = _listening.set(notes)
    try:
        yield notes
    finally:
        _listening.reset(token)


def note(engine: Engine, precision: str = "32-true") -> None:
    """Record how a training is about to be computed, for the innermost open context."""
    notes, computed = _listening.get(), Computed(engine, precision, memory_is_kept())
    if notes is not None and computed not in notes:
        notes.append(computed)
