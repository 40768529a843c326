"""Reversible heavy ball against ordinary training: bytes kept for backward, time, gradients, over depth.

    python benchmarks/reversible.py

Three sides with the same transforms (conv-BN-ReLU-conv-BN): reversible, ordinary with the same float64 state, and
plain with a float32 state. The figure over depth is drawn into reversible.html beside this file.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import Row, interleaved, report, saved_bytes
from torch import Tensor, nn

from relucid.nn.propagation import Propagation
from relucid.nn.rules import HeavyBall

SIDES: dict[str, dict[str, Any]] = {
    "reversible": {"reversible": True},
    "ordinary": {"state_dtype": torch.float64},
    "plain": {},
}


def transforms(depth: int, channels: int) -> list[nn.Module]:
    def convolution() -> nn.Module:
        return nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def batch_norm() -> nn.Module:
        return nn.BatchNorm2d(channels)

    return [
        nn.Sequential(convolution(), batch_norm(), nn.ReLU(), convolution(), batch_norm())
        for _ in range(depth)
    ]


def gradients(stage: nn.Module, x: Tensor) -> Tensor:
    """Of a fixed random projection of the output, in input and parameters, one after the other."""
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    loss = (stage(x) * weight).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [x, *stage.parameters()])])


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def kept(stage: nn.Module, x: Tensor) -> int:
    return saved_bytes(lambda: stage(x), exclude=stage.parameters())


def over_depth(depths: list[int], channels: int, size: int, batch: int, repeats: int) -> list[dict[str, Any]]:
    """Bytes, seconds and gradient error of each side, for each depth."""
    rows = []
    for depth in depths:
        shared, x = transforms(depth, channels), torch.randn(batch, channels, size, size, requires_grad=True)
        stages = {side: Propagation(shared, "heavy_ball", **options) for side, options in SIDES.items()}
        expected = gradients(stages["ordinary"], x)
        rows.append(
            {
                "depth": depth,
                "bytes": {side: kept(stage, x) for side, stage in stages.items()},
                "seconds": interleaved(
                    {side: partial(gradients, stage, x) for side, stage in stages.items()}, repeats
                ),
                "error": {side: relative_error(gradients(stages[side], x), expected) for side in SIDES},
            }
        )
    return rows


def bytes_of(side: str, depths: list[int], channels: int, size: int, batch: int) -> dict[int, int]:
    x = torch.randn(batch, channels, size, size)
    return {depth: kept(Propagation(transforms(depth, channels), **SIDES[side]), x) for depth in depths}


def drift(betas: list[float], depths: list[int]) -> list[dict[str, Any]]:
    """The gradient error where beta2 = -beta is not -1; None where the stage refused, as it missed its input."""
    rows = []
    for beta in betas:
        for depth in depths:
            shared, x = transforms(depth, 8), torch.randn(8, 8, 8, 8, requires_grad=True)
            expected = gradients(Propagation(shared, HeavyBall(beta), state_dtype=torch.float64), x)
            try:
                found = gradients(Propagation(shared, HeavyBall(beta), reversible=True), x)
                rows.append({"beta": beta, "depth": depth, "error": relative_error(found, expected)})
            except RuntimeError:
                rows.append({"beta": beta, "depth": depth, "error": None})
    return rows


def measure() -> dict[str, Any]:
    torch.manual_seed(0)
    wide = {"channels": 64, "size": 32, "batch": 32}
    return {
        "wide bytes": {
            "reversible": bytes_of("reversible", [10, 50, 200], **wide),
            "ordinary": bytes_of("ordinary", [10, 50], **wide),  # 200 layers would take 7 GB
        },
        "wide": over_depth([10], **wide, repeats=5),
        "deep": over_depth([10, 30, 100, 300, 1000], channels=16, size=16, batch=16, repeats=2),
        "drift": drift([0.5, 0.9, 0.99, 1.0, 1.01], [10, 30, 100, 300]),
    }


def show(results: dict[str, Any]) -> None:
    print("64 channels, 32x32, batch 32: bytes kept, over those at depth 10")
    for side, at in results["wide bytes"].items():
        print(f"  {side:12}" + "".join(f"  depth {depth}: {at[depth] / at[10]:.2f}" for depth in at))
    print(f"\n{'':22}{'depth':>6}{'MB kept':>24}{'seconds, reversible over':>30}{'gradient error':>24}")
    print(
        f"{'':28}{'reversible':>12}{'ordinary':>12}{'ordinary':>15}{'plain':>15}{'reversible':>12}{'plain':>12}"
    )
    for name, rows in (("64 x 32x32 x 32", results["wide"]), ("16 x 16x16 x 16", results["deep"])):
        for row in rows:
            kept, seconds, error = row["bytes"], row["seconds"], row["error"]
            print(
                f"{name:22}{row['depth']:6}{kept['reversible'] / 1e6:12.1f}{kept['ordinary'] / 1e6:12.1f}"
                f"{seconds['reversible'] / seconds['ordinary']:15.2f}{seconds['reversible'] / seconds['plain']:15.2f}"
                f"{error['reversible']:12.1e}{error['plain']:12.1e}"
            )
    print(
        "\ngradient error with beta1 = -beta2 = beta, against an ordinary stage (refused: the input was missed)"
    )
    for row in results["drift"]:
        error = "refused" if row["error"] is None else f"{row['error']:.1e}"
        print(f"  beta {row['beta']:<6} depth {row['depth']:<6} {error}")


def figure(results: dict[str, Any]) -> Any:
    """Bytes, seconds and gradient error over depth, one panel each."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    panels = {"bytes": "bytes kept for backward", "seconds": "seconds a step", "error": "gradient error"}
    colors = dict(zip(SIDES, ("#1f77b4", "#d62728", "#7f7f7f"), strict=True))
    chart = make_subplots(1, 3, subplot_titles=list(panels.values()))
    for column, key in enumerate(panels, start=1):
        for side, color in colors.items():
            x, y = zip(*[(row["depth"], row[key][side]) for row in results["deep"]], strict=True)
            line = Scatter(x=x, y=y, name=side, line={"color": color}, showlegend=column == 1)
            chart.add_trace(line, row=1, col=column)
    chart.update_xaxes(type="log", title="depth").update_yaxes(type="log")
    return chart


def rows(results: dict[str, Any]) -> list[Row]:
    """What is claimed of 64 channels, 32x32 images and batches of 32, and of gradients at depth 1000."""
    kept = results["wide bytes"]["reversible"]
    seconds, deepest = results["wide"][0]["seconds"], results["deep"][-1]
    return [
        Row("reversible, depth 200 / depth 10", "bytes", kept[200], kept[10], 1.15),
        Row("reversible / ordinary, float64 state", "time", seconds["reversible"], seconds["ordinary"], 1.3),
        Row("reversible / ordinary, float32 state", "time", seconds["reversible"], seconds["plain"], 1.5),
        Row("gradient error at depth 1000 / 1e-5", "error", deepest["error"]["reversible"], 1e-5, 1.0),
    ]


def main() -> None:
    results = measure()
    show(results)
    report("reversible", rows(results), over_depth=results)
    figure(results).write_html(Path(__file__).with_suffix(".html"), include_plotlyjs=True)


if __name__ == "__main__":
    main()
