"""L2 towards the first weights (regenerative regularization, Kumar et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from relucid.remedies._effect import RemedyError, check_network


def l2_distance(parameters: Mapping[str, Tensor], anchors: Mapping[str, Tensor]) -> Tensor:
    """The squared distance sum_i (w_i - a_i)^2 of parameters from anchors of the same names.

    >>> l2_distance({"w": torch.tensor([1.0, 2.0])}, {"w": torch.zeros(2)})
    tensor(5.)
    """
    total = [(parameters[name] - anchor).square().sum() for name, anchor in anchors.items()]
    return torch.stack(total).sum()


class L2Init:
    """Penalty strength * |w - w_0|^2 for the distance of all trained parameters from where they began.

    Add its value to the loss. ``w_0`` are the weights that the network has when the penalty is made.

    Args:
        model: Any network.
        strength: The factor; Kumar et al. try 1e-2 to 1e-6.

    >>> net = nn.Linear(2, 1)
    >>> penalty = L2Init(net, strength=0.5)
    >>> _ = net.bias.data.add_(2.0)
    >>> penalty()
    tensor(2., grad_fn=<MulBackward0>)
    """

    def __init__(self, model: nn.Module, strength: float) -> None:
        check_network(model)
        if not strength >= 0:
            raise RemedyError(f"strength must be 0 or more; got {strength}")
        self.model, self.strength = model, strength
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise RemedyError("no parameter of the network is trained")
        self.anchors = {name: p.detach().clone() for name, p in trained.items()}

    def __call__(self) -> Tensor:
        """The penalty, to add to the loss."""
        parameters = dict(self.model.named_parameters())
        for name, anchor in self.anchors.items():
            if name not in parameters or parameters[name].shape != anchor.shape:
                raise RemedyError(f"{name} has been changed since the penalty was made: make a new L2Init")
            if anchor.device != parameters[name].device:
                self.anchors[name] = anchor.to(parameters[name].device)
        return self.strength * l2_distance(parameters, self.anchors)

    def state_dict(self) -> dict[str, Any]:
        """What to keep in a checkpoint."""
        return {"anchors": dict(self.anchors)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.anchors = dict(state["anchors"])
