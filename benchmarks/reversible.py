"""Reversible heavy ball against what a user would type instead, over depth: memory, time, gradients.

    python benchmarks/reversible.py

The same transforms, as an ordinary stage, with torch.utils.checkpoint around each layer or around segments of
sqrt(depth) layers, and reversible. Memory is what a forward pass holds for backward.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from measure import Row, device_asked_for, held_bytes, interleaved, report
from torch import Tensor, nn

from relucid.nn.propagation import Propagation
from relucid_reproductions.ours.depth import Checkpointed


def transforms(depth: int, channels: int) -> list[nn.Module]:
    """Blocks of HB-Net: two convolutions with batch norm, a ReLU between them."""

    def convolution() -> nn.Module:
        return nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def batch_norm() -> nn.Module:
        return nn.BatchNorm2d(channels)

    return [
        nn.Sequential(convolution(), batch_norm(), nn.ReLU(), convolution(), batch_norm())
        for _ in range(depth)
    ]


def mlp_blocks(depth: int, width: int) -> list[nn.Module]:
    """The feed-forward half of a transformer's layer, ahead of it a norm."""
    return [
        nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        for _ in range(depth)
    ]


class Recomputed(nn.Module):
    """Lower bounds for time: each layer forward twice and backward once, without and with the sums of Eq. 16.

    Nothing else is done: running statistics count twice, dropout would differ, nothing is checked, and what a caller
    of the stage would need, a node in autograd's graph, is not made.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def step(self, x: Tensor) -> None:
        """All layers once without a graph, then each with one of its own, all on the same input."""
        self.zero_grad()
        inputs, ones = x.detach().requires_grad_(), torch.ones_like(x)
        with torch.no_grad():
            for layer in self.layers:
                layer(inputs)
        for layer in self.layers:
            torch.autograd.backward(layer(inputs), ones, inputs=[inputs, *layer.parameters()])

    def step_with_sums(self, x: Tensor) -> None:
        """Forward with beta = 1 in float64, rounded, and back again."""
        self.zero_grad()
        state = x.detach().double()
        before = state
        with torch.no_grad():
            for layer in self.layers:
                y = layer(state.float()).double().add_(GRID).sub_(GRID)
                before, state = state, y.add_(state).sub_(before)
        grad, grad_before = torch.ones_like(state), torch.zeros_like(state)
        for layer in reversed(self.layers):
            inputs = before.float().requires_grad_()
            output = layer(inputs)
            torch.autograd.backward(output, grad.float(), inputs=[inputs, *layer.parameters()])
            y = output.detach().double().add_(GRID).sub_(GRID)
            before, state = y.add_(before).sub_(state), before
            assert inputs.grad is not None
            grad_before, grad = -grad, grad_before.add_(grad).add_(inputs.grad)


GRID = 1.5 * 2.0**16  # adding and subtracting it rounds to a multiple of 2^-36
SIDES: dict[str, Callable[[list[nn.Module]], nn.Module]] = {
    "reversible": partial(Propagation, reversible=True),
    "ordinary": Propagation,
    "checkpoint per layer": partial(Checkpointed, length=1),
    "checkpoint in segments": Checkpointed,
}
CASES: dict[str, tuple[Callable[[int], list[nn.Module]], tuple[int, ...]]] = {
    "8 channels, 8x8": (partial(transforms, channels=8), (8, 8, 8, 8)),
    "16 channels, 16x16": (partial(transforms, channels=16), (8, 16, 16, 16)),
    "64 channels, 16x16": (partial(transforms, channels=64), (8, 64, 16, 16)),
    "MLP of width 128": (partial(mlp_blocks, width=128), (8, 32, 128)),
}


def gradients(stage: nn.Module, x: Tensor) -> Tensor:
    """Of a fixed random projection of the output, in input and parameters, one after the other."""
    weight = torch.randn(x.shape, generator=torch.Generator("cpu").manual_seed(1), device="cpu").to(x.device)
    loss = (stage(x) * weight).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [x, *stage.parameters()])])


def step(stage: nn.Module, x: Tensor) -> None:
    """Forward and backward; what it leaves behind is gone when the next one begins."""
    for parameter in (x, *stage.parameters()):
        parameter.grad = None
    stage(x).sum().backward()


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def compare(case: str, depth: int, repeats: int) -> dict[str, Any]:
    """Seconds of a step, and bytes held between its two halves, of each side."""
    make, shape = CASES[case]
    layers, x = make(depth), torch.randn(shape, requires_grad=True)
    stages = {side: build(layers) for side, build in SIDES.items()}
    steps = {side: partial(step, stage, x) for side, stage in stages.items()}
    steps["recomputation alone"] = partial(Recomputed(layers).step, x)
    steps["recomputation and sums"] = partial(Recomputed(layers).step_with_sums, x)
    return {
        "case": case,
        "depth": depth,
        "seconds": interleaved(steps, repeats),
        "bytes": {side: held_bytes(partial(stage, x)) for side, stage in stages.items()},
    }


def gradient_error(depth: int) -> float:
    """Of a reversible stage, against an ordinary one with the same float64 state."""
    layers, x = transforms(depth, 8), torch.randn(4, 8, 8, 8, requires_grad=True)
    expected = gradients(Propagation(layers, state_dtype=torch.float64), x)
    return relative_error(gradients(Propagation(layers, reversible=True), x), expected)


def measure() -> dict[str, Any]:
    torch.manual_seed(0)
    compared = [compare("8 channels, 8x8", 30, repeats=25)]
    compared += [
        compare(case, depth, repeats)
        for case in CASES
        for depth, repeats in ((10, 10), (50, 5), (200, 2), (1000, 1))
    ]
    return {"compared": compared, "error at depth 1000": gradient_error(1000)}


def rows(results: dict[str, Any]) -> list[Row]:
    """What is claimed: of small transforms, of 200 wide layers, and of gradients at depth 1000."""
    at = {(row["case"], row["depth"]): row for row in results["compared"]}
    small, wide = at["8 channels, 8x8", 30], at["64 channels, 16x16", 200]
    shallow = at["64 channels, 16x16", 10]
    return [
        _row("8 channels, 8x8, depth 30 / ordinary", "time", small["seconds"], "ordinary", 1.5),
        *(
            Row(
                f"{bound}, 8 channels, 8x8, depth 30 / ordinary",
                "time",
                small["seconds"][bound],
                small["seconds"]["ordinary"],
                1.5,
            )
            for bound in ("recomputation alone", "recomputation and sums")
        ),
        _row(
            "64 channels, depth 200 / checkpoint per layer",
            "time",
            wide["seconds"],
            "checkpoint per layer",
            1.0,
        ),
        _row(
            "64 channels, depth 200 / checkpoint per layer",
            "bytes",
            wide["bytes"],
            "checkpoint per layer",
            0.1,
        ),
        _row(
            "64 channels, depth 200 / checkpoint in segments",
            *("time", wide["seconds"], "checkpoint in segments", 1.0),
        ),
        _row("64 channels, depth 200 / ordinary", "time", wide["seconds"], "ordinary", 1.5),
        _row("64 channels, depth 10 / ordinary", "time", shallow["seconds"], "ordinary", 1.5),
        Row("gradient error at depth 1000 / 1e-5", "error", results["error at depth 1000"], 1e-5, 1.0),
    ]


def _row(case: str, what: str, found: dict[str, float], other: str, bar: float) -> Row:
    return Row(case, what, found["reversible"], found[other], bar)


def main() -> None:
    device_asked_for(__doc__)
    results = measure()
    report("reversible", rows(results), over_depth=results)


if __name__ == "__main__":
    main()
