"""Conversions of odd networks end in the same function, on other sizes and in both modes, or in a refusal."""

import os
import random

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball

from .odd import CONVERSIONS, Odd, odd_network, trial

SEED = int(os.environ.get("RELUCID_SEED", "0"))


def odd(piece, batch=2, output="tensor"):
    random.seed(0)
    return Odd([piece], output).double(), torch.randn(batch, 3, 8, 8, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "conversion, piece",
    [
        ("expand", "norm_for_several"),
        ("expand", "odd_sizes_padded"),
        ("fuse", "pooled_if_large"),
        ("expand", "hooked"),
        ("geometric", "hooked_before"),
        ("geometric", "hooked_backward"),
        ("expand", "in_place_view"),
        ("geometric", "in_place_part"),
        ("expand", "read_after_in_place"),
        ("expand", "in_place_sum"),
        ("expand", "over_time"),
        ("expand", "own_train"),
        ("expand", "depthwise_multiplied"),
        ("fuse", "hooked"),
        ("geometric", "threaded"),
        ("expand", "skipped_at_random"),
        ("expand", "without_gradients"),
        ("expand", "frozen"),
        ("geometric", "frozen"),
        ("merge", "opposite_pairs"),
        ("expand", "unused"),
        ("expand", "dropped_in_place"),
        ("expand", "running_mean"),
        ("geometric", "tied"),
        ("geometric", "read_as_tensor"),
        ("geometric", "no_width"),
        ("fuse", "symmetric"),
    ],
)
def test_what_a_conversion_could_lose_is_kept(conversion, piece):
    model, example = odd(piece, batch=1 if piece == "norm_for_several" else 2)
    assert trial(model, example, conversion) == "converted"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(4))
def test_no_conversion_of_an_odd_network_is_silently_wrong(number):
    for name in CONVERSIONS:
        model, example = odd_network(SEED + number, size=(2, 2))
        assert not trial(model, example, name).startswith("wrong")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hundred", range(4))
def test_no_conversion_of_hundreds_of_odd_networks_is_silently_wrong(hundred):
    wrong = {}
    for seed in range(SEED + 100 * hundred, SEED + 100 * (hundred + 1)):
        for name in CONVERSIONS:
            ended = trial(*odd_network(seed), name)
            if ended.startswith("wrong"):
                wrong[seed, name] = ended
    assert not wrong


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("piece", ["stage", "stage_called_twice", "called_and_iterated"])
def test_stages_of_residual_blocks_get_momentum(piece):
    model, example = odd(piece)
    assert trial(model, example, "heavy ball") == "converted"
    assert any("betas" in name for name, _ in to_heavy_ball(model, example).model.named_parameters())


@pytest.mark.filterwarnings("ignore:fuse changes no layer")
@pytest.mark.parametrize("conversion", [to_crelu, to_geometric, fuse])
def test_unused_modules_and_frozen_parameters_stay_in_the_state_and_as_they_are(conversion):
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 2)
            self.part = nn.ModuleDict({"spare": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))})
            self.fc1.requires_grad_(False)
            self.register_buffer("table", torch.ones(1), persistent=False)

        def forward(self, x):
            return self.fc2(self.fc1(x).relu()) * self.table

    net = conversion(Spare(), torch.randn(2, 3)).model
    state = set(net.state_dict())
    assert {"part.spare.0.weight", "part.spare.1.running_mean"} <= state
    assert "table" not in state
    assert not any(p.requires_grad for p in net.fc1.parameters())
    assert all(p.requires_grad for p in net.fc2.parameters())


class Bare(nn.Module):
    def forward(self, x):
        return x.relu() + x


class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x.relu()).argmax(1)


class Frozen(Classes):
    def forward(self, x):
        with torch.no_grad():
            return self.fc(self.fc.weight.sum() * x.relu())


ENDS = {
    "bare": Bare,
    "classes": Classes,
    "frozen": Frozen,
    "narrow": lambda: nn.Sequential(nn.Linear(3, 0), nn.ReLU(), nn.Linear(0, 2)),
    "keyword": lambda: nn.ModuleDict({"in": nn.Linear(3, 2)}),
    "relu": nn.ReLU,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("conversion", CONVERSIONS)
@pytest.mark.parametrize("network", ENDS)
def test_every_end_is_a_network_or_a_refusal(network, conversion):
    model, x = ENDS[network](), torch.randn(4, 3)
    try:
        net = CONVERSIONS[conversion](model, x).model
    except ConversionError as error:
        message = str(error)
    else:
        message = "" if torch.allclose(net(x), model(x)) else "differs"
    assert message != "differs"
