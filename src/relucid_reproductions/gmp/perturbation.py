"""How far a perturbation of a unit's parameters turns its boundary (gmp Section 3.4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucid.inspect._boundary import Boundary, hyperplanes
from relucid.inspect.tracker import change
from relucid.nn.sphere import angles_of, unit_vector


@dataclass(frozen=True)
class Perturbation:
    """Boundaries before and after every parameter changes by epsilon, for three parameterizations of a unit."""

    before: Boundary
    after: dict[str, tuple[Boundary, ...]]  #: by parameterization, one per epsilon
    turned: dict[str, Tensor]  #: by parameterization: angles between u and u', (epsilons, N)


def perturbation(weight: Tensor, bias: Tensor | None, epsilon: Sequence[float]) -> Perturbation:
    r"""Measure how far units turn when each of their parameters grows by epsilon.

    - "standard": w and b (gmp Eq. 12);
    - "weightnorm": v = w, l = |w| and b (Eq. 14), which turns as far as "standard";
    - "geometric": the angles and lambda. By Theorem 3 it turns by at most |epsilon|_2, and by |epsilon|_M to first
      order (the paper prints an equality).

    Args:
        weight: (N, ...), as for a standard layer.
        bias: (N,); None means 0.
        epsilon: Sizes of the perturbation; each is added to every parameter.

    >>> units = perturbation(torch.tensor([[1e-3, 0.0]]), torch.tensor([1e-3]), [1e-3, 1e-2])
    >>> units.turned["standard"].rad2deg()[:, 0], units.turned["geometric"].rad2deg()[:, 0]
    (tensor([26.5651, 42.2737], dtype=torch.float64), tensor([0.0573, 0.5730], dtype=torch.float64))
    """
    if not len(epsilon):
        raise ValueError("perturbation needs at least one epsilon")
    w = weight.detach().flatten(1).double()
    b = w.new_zeros(len(w)) if bias is None else bias.detach().double()
    before = hyperplanes(w, b)
    if not bool(before.defined.all()):
        raise ValueError("a unit whose weights are all zero has no boundary to perturb")
    angles = angles_of(w)
    sign = w.sign() if w.shape[1] == 1 else 1  # in one dimension there is only a sign, no angle
    norms = w.norm(dim=1)
    after: dict[str, list[Boundary]] = {"standard": [], "weightnorm": [], "geometric": []}
    for e in epsilon:
        direction = hyperplanes(w + e, None).direction
        after["standard"].append(hyperplanes(w + e, b + e))
        after["weightnorm"].append(hyperplanes((norms + e).unsqueeze(1) * direction, b + e))
        after["geometric"].append(Boundary(unit_vector(angles + e) * sign, before.radius + e))
    return Perturbation(
        before=before,
        after={name: tuple(boundaries) for name, boundaries in after.items()},
        turned={
            name: torch.stack([change(before, now)[1] for now in boundaries])
            for name, boundaries in after.items()
        },
    )
