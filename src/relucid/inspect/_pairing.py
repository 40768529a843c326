"""Pairs of filters with opposite phase: the observation that led to CReLU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from relucid.inspect._statistics import discoveries, extreme_p_value
from relucid.inspect.findings import Finding
from relucid.inspect.measurement import Measurement, indices, plain
from relucid.printing import Summarized

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from relucid.inspect._trace import Rectified, Source

TWINS = 0.99  # filters with at least this cosine do the same thing
WIDEST = 1 << 15  # filters: ten seconds on one core
BLOCK = 2048  # filters; a block of cosines takes 16 MB in float32, however large the layer


@dataclass(frozen=True)
class Pairing(Summarized):
    """Most opposite and most aligned partner of each filter. Vectors have one entry per filter."""

    opposite: Tensor  #: mu_i, the cosine with the most opposite filter; nan if the filter has no partner
    opposite_index: Tensor  #: index of that filter, or -1
    aligned: Tensor  #: cosine with the most aligned filter; nan if the filter has no partner
    aligned_index: Tensor  #: index of that filter, or -1
    p_value: Tensor  #: probability that a random filter has a partner at least this opposite
    paired: Tensor  #: True where the filter has an opposite partner that chance does not explain
    twins: Tensor  #: True where it has a nearly identical partner that chance does not explain
    dimension: int  #: number of weights per filter
    others: int  #: number of filters that each one is compared with

    @property
    def share(self) -> float:
        """Share of filters that have an opposite partner."""
        return float(self.paired.double().mean())

    @property
    def random_share(self) -> float:
        """Share of random filters that would have a partner at least as opposite as the weakest pair found."""
        return float(self.p_value[self.paired].max()) if bool(self.paired.any()) else 0.0

    @property
    def mutual(self) -> list[tuple[int, int]]:
        """Pairs (i, j), i < j, of `paired` filters that are each other's most opposite filter."""
        partner = self.opposite_index.tolist()
        return [
            (i, j)
            for i, j in enumerate(partner)
            if i < j and partner[j] == i and bool(self.paired[i]) and bool(self.paired[j])
        ]

    def summary(self) -> str:
        """A summary in one sentence."""
        if self.others < 1:
            return "there is only one filter, so there are no pairs"
        return (
            f"{self.share:.0%} of {len(self.paired)} filters have an opposite partner "
            f"(random: {self.random_share:.2g}); mean mu {float(self.opposite.nanmean()):.2f}"
        )

    def figure(self, title: str = "") -> Figure:
        """Draw the histogram of mu with its density for random filters (crelu Fig. 2, 3)."""
        import plotly.graph_objects as go

        edges = torch.linspace(-1, 1, 201, dtype=torch.float64)
        below = extreme_p_value(edges, self.dimension, self.others)
        density = below.diff() / edges.diff()
        centres = (edges[1:] + edges[:-1]) / 2
        # Plotly writes an array with four bytes per number, but a list with all its digits.
        mu = self.opposite[~self.opposite.isnan()].float().numpy()
        bars = go.Histogram(x=mu, xbins={"size": 0.02}, histnorm="probability density", name="filters")
        x, y = centres.float().numpy(), density.float().numpy()
        line = go.Scatter(x=x, y=y, name="random filters", mode="lines")
        layout = {"xaxis_title": "cosine with the most opposite filter", "yaxis_title": "density"}
        return go.Figure([bars, line], {"title": title, **layout})


def is_too_wide(source: Source) -> bool:
    """Whether `examine` leaves the pairs of a weight out, because their number grows with the square."""
    return len(source.weight) // source.groups > WIDEST


@dataclass(frozen=True)
class Pairings(Measurement):
    """Pairs in each weight that feeds a layer."""

    columns: ClassVar[dict[str, str]] = {
        "paired": "filters with an opposite partner that chance does not explain, by weight that feeds the layer"
    }

    by_source: dict[str, Pairing]

    @classmethod
    def measure(cls, layer: Rectified, network: nn.Module) -> Pairings:
        """Find the pairs in finite weights; a norm with a negative scale reverses a filter."""
        sign = None if layer.scale is None else layer.scale.sign()
        sources = [
            s for s in layer.sources if s.weight.numel() and not is_too_wide(s) and _is_finite(s.weight)
        ]
        return cls({s.name: pairing(s.weight, s.groups, sign=sign) for s in sources})

    def summary(self) -> str:
        """One line per weight."""
        return "\n".join(f"{name}: {pairs.summary()}" for name, pairs in self.by_source.items())

    def to_dict(self) -> dict[str, Any]:
        """All values, by weight."""
        return {
            name: plain(p) | {"share": p.share, "random_share": p.random_share}
            for name, p in self.by_source.items()
        }

    def row(self) -> dict[str, str]:
        """The shares of paired filters."""
        return {"paired": ", ".join(f"{p.share:.0%}" for p in self.by_source.values() if p.others)}

    def figures(self) -> dict[str, Figure]:
        """Draw a histogram for each weight."""
        several = len(self.by_source) > 1
        return {
            f"pairs of {name}" if several else "pairs": p.figure(name)
            for name, p in self.by_source.items()
            if p.others
        }

    def findings(self, layer: Rectified) -> Iterator[Finding]:
        """Yield pairs that could be merged, and twins."""
        for source in (s for s in layer.sources if s.name in self.by_source):
            pairs = self.by_source[source.name]
            # Pairs cannot be merged in a sum of branches.
            if pairs.mutual and layer.kind == "relu" and layer.scale is not None:
                yield _paired(layer, source, pairs)
            if twins := indices(pairs.twins):
                what = f"{len(twins)} of {len(pairs.twins)} filters have a nearly identical twin"
                share = len(twins) / len(pairs.twins)
                yield Finding(layer.layer, "twins", f"{source.name}: {what}", {"units": twins}, share=share)


def _paired(layer: Rectified, source: Source, pairs: Pairing) -> Finding:
    saved = len(pairs.mutual) * (source.weight[0].numel() + (source.bias is not None))
    what = f"{pairs.share:.0%} of filters have an opposite partner (by chance: {pairs.random_share:.1%})"
    evidence = {
        "pairs": pairs.mutual,
        "share": pairs.share,
        "random_share": pairs.random_share,
        "saved": saved,  # weights, by to_crelu(mode="merge")
    }
    return Finding(layer.layer, "paired", f"{source.name}: {what}", evidence, share=pairs.share)


def pairing(
    weight: Tensor,
    groups: int = 1,
    *,
    level: float = 0.01,
    threshold: float = -0.5,
    sign: Tensor | None = None,
) -> Pairing:
    r"""Find each filter's most opposite and most aligned partner, and test them against random filters.

    mu_i = min_j <phi_i, phi_j> over unit-length filters (crelu Section 2.1). If the N filters were random,
    P(mu_i <= t) = 1 - (1 - F(t))^(N - 1) with F from `relucid.inspect._statistics.cosine_cdf`. A filter counts
    as paired if chance is ruled out at a false discovery rate of ``level``, mu_i <= ``threshold``, and no filter is
    more aligned with it than its partner is opposed (filters that only share an axis have both).

    Args:
        weight: (filters, ...), of a linear or convolution layer.
        groups: Groups of the convolution; filters of different groups see different inputs and cannot pair.
        level: Tolerated share of false pairs among those found.
        threshold: Largest cosine of a pair.
        sign: (filters,): -1 where the next operation reverses a filter, 0 where it cancels it.

    >>> pairs = pairing(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-2.0, 0.0, 0.0]]))
    >>> pairs.opposite.tolist(), pairs.opposite_index.tolist(), pairs.mutual
    ([-1.0, 0.0, -1.0], [2, 0, 0], [(0, 2)])
    """
    if weight.dim() < 2 or not len(weight) or len(weight) % groups:
        raise ValueError(
            f"pairing needs weights of shape (filters, ...) with filters a multiple of groups={groups}; "
            f"got {tuple(weight.shape)}"
        )
    filters = weight.detach().flatten(1)
    if not filters.is_floating_point() or not _is_finite(filters):
        raise ValueError("pairing needs finite floating-point weights; these contain integers, nan or inf")
    size = len(filters) // groups
    signs = filters.new_ones(len(filters)) if sign is None else sign.to(filters)
    parts = zip(filters.split(size), signs.split(size), strict=True)
    extremes = [_extremes(*part, offset=size * g) for g, part in enumerate(parts)]
    opposite, opposite_index, aligned, aligned_index = (
        torch.cat(part).cpu() for part in zip(*extremes, strict=True)
    )
    dimension = filters.shape[1]
    p_value = extreme_p_value(opposite.nan_to_num(1.0), dimension, size - 1)
    mostly_opposite = (opposite <= threshold) & (aligned <= 1e-6 - opposite)  # a tie counts, up to rounding
    paired = mostly_opposite & discoveries(p_value, level)
    aligned_p_value = extreme_p_value(-aligned.nan_to_num(-1.0), dimension, size - 1)  # by symmetry
    twins = (aligned >= TWINS) & discoveries(aligned_p_value, level)
    return Pairing(
        opposite, opposite_index, aligned, aligned_index, p_value, paired, twins, dimension, size - 1
    )


def _is_finite(weight: Tensor) -> bool:
    return all(bool(block.isfinite().all()) for block in weight.split(BLOCK))


def _extremes(filters: Tensor, sign: Tensor, offset: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(smallest cosine, its index, largest cosine, its index) of each filter with the others.

    Cosines are computed block by block and never kept; a block above the diagonal serves both rows and columns.
    """
    dtype = torch.float64 if filters.dtype == torch.float64 else torch.float32
    norms = torch.cat([block.to(dtype).norm(dim=1) for block in filters.split(BLOCK)])
    alive = ((norms > 0) & (sign != 0)).nonzero().squeeze(1)  # a filter of zeros has no direction
    kept = filters if len(alive) == len(filters) else filters[alive]
    factor = (sign[alive].to(dtype) / norms[alive]).unsqueeze(1)

    def unit(start: int) -> Tensor:
        return kept[start : start + BLOCK].to(dtype) * factor[start : start + BLOCK]

    none = torch.full((len(kept),), -1, device=kept.device)
    low = torch.full_like(norms[alive], torch.inf), none
    high = -low[0], none.clone()
    for i in range(0, len(kept), BLOCK):
        rows = unit(i)
        for j in range(i, len(kept), BLOCK):
            cosines = rows @ (rows if i == j else unit(j)).T
            for known, pick, compare, itself in (
                (low, torch.min, torch.lt, torch.inf),
                (high, torch.max, torch.gt, -torch.inf),
            ):
                if i == j:
                    cosines.fill_diagonal_(itself)
                else:
                    _update(known, compare, pick(cosines, 0), rows=j, columns=i)
                _update(known, compare, pick(cosines, 1), rows=i, columns=j)
    return *_scattered(*low, alive, len(filters), offset), *_scattered(*high, alive, len(filters), offset)


def _update(
    known: tuple[Tensor, Tensor],
    compare: Callable[[Tensor, Tensor], Tensor],
    block: tuple[Tensor, Tensor],
    rows: int,
    columns: int,
) -> None:
    """Take over the cosines of some rows, and their indices, that are more extreme than those known."""
    value, index = block
    values, indices = (x[rows : rows + len(value)] for x in known)
    better = compare(value, values)
    values[better], indices[better] = value[better], index[better] + columns


def _scattered(
    value: Tensor, index: Tensor, alive: Tensor, filters: int, offset: int
) -> tuple[Tensor, Tensor]:
    """The cosines and indices of all filters; nan and -1 where there is no partner."""
    values = value.new_full((filters,), torch.nan)
    indices = torch.full((filters,), -1, device=value.device)
    if len(alive) > 1:
        values[alive] = value.clamp(-1, 1)
        indices[alive] = alive[index] + offset
    return values, indices


def figure_of_pairs(weight: Tensor, measured: Pairing, columns: int = 8, most: int | None = None) -> Figure:
    """Draw each filter of a layer beside its most opposite filter, strongest pairs first (crelu Fig. 1).

    Filters with one or three input channels are drawn as images; for others, the mean over the input channels is.

    Args:
        weight: (filters, channels, height, width).
        measured: Their `pairing`.
        columns: Pairs per row.
        most: Largest number of pairs to draw; all by default.
    """
    import plotly.graph_objects as go

    if weight.dim() != 4:
        raise ValueError(f"only filters with two spatial dimensions can be drawn; got {tuple(weight.shape)}")
    images = weight.detach().float().cpu()
    images = images if images.shape[1] == 3 else images.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    images = images / images.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-30) * 0.5 + 0.5
    order = measured.opposite.nan_to_num(2.0).argsort()[:most]
    pairs = torch.cat([images[order], images[measured.opposite_index[order]]], 3)
    pairs = torch.nn.functional.pad(pairs, (0, 1, 0, 1), value=1.0)
    missing = -len(pairs) % columns
    pairs = torch.cat([pairs, pairs.new_ones(missing, *pairs.shape[1:])])
    grid = pairs.unflatten(0, (-1, columns)).permute(0, 3, 1, 4, 2)  # rows, height, columns, width, colours
    grid = grid.flatten(2, 3).flatten(0, 1)
    picture = go.Image(z=(grid * 255).round().to(torch.uint8).numpy())
    height = 32 + 68 * (len(pairs) // columns)  # large enough to see each filter
    bare = {"xaxis_visible": False, "yaxis_visible": False, "margin": {"l": 0, "r": 0, "t": 32, "b": 0}}
    return go.Figure(picture, {**bare, "height": height})
