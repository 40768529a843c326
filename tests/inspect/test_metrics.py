"""Measures of plasticity against the definitions of the literature, written out."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.inspect import examine, metrics
from relucid.inspect._metrics import KEYS
from relucid.nn import CReLU

DATA = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))


def mlp(activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 30), activation(), nn.Linear(30, 20), activation(), nn.Linear(20, 3))
    with torch.no_grad():  # units of all degrees of activity
        net[0].weight *= torch.logspace(-4, 0.5, 30).view(-1, 1)
        net[0].bias *= torch.logspace(-4, 0.5, 30)
        net[2].bias[:4] -= 50
    return net


def features(net, data=DATA):
    """The outputs of the hidden layers."""
    with torch.no_grad():
        first = net[1](net[0](data))
        return [first, net[3](net[2](first))]


# timoklein/redo, src/redo.py, and Sokar et al. 2023, Eq. 1
def redo_mask(activation, tau):
    score = activation.abs().mean(dim=(0, 2, 3) if activation.ndim == 4 else 0)
    normalized = score / (score.mean() + 1e-9)
    return normalized <= tau if tau > 0 else torch.isclose(normalized, torch.zeros_like(normalized))


# shibhansh/loss-of-plasticity, lop/algos/gntRedo.py
def gnt_redo(activation, threshold):
    utility = activation.abs().mean(0) / activation.abs().mean(0).mean()
    return utility <= threshold


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU])
@pytest.mark.parametrize("tau", [0.025, 0.1, 0.01])
def test_dormant_units_are_those_of_redo_and_of_loss_of_plasticity(activation, tau):
    net = mlp(activation)
    for definition in (redo_mask, gnt_redo):
        masks = [definition(x, tau) for x in features(net)]
        assert metrics(net, DATA, tau=tau)["dormant"] == pytest.approx(
            float(torch.cat(masks).double().mean())
        )
    assert 0 < metrics(net, DATA, tau=tau)["dormant"] < 1 or activation is not nn.ReLU


def test_dormant_units_of_maps_are_those_of_redo():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 12, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(192, 2))
    net[0].weight.data *= torch.logspace(-3, 0, 12).view(-1, 1, 1, 1)
    net[0].bias.data *= torch.logspace(-3, 0, 12)
    images = torch.randn(40, 2, 6, 6)
    examination = metrics(net, images, tau=0.1)["dormant"]
    assert examination == pytest.approx(float(redo_mask(net[1](net[0](images)), 0.1).double().mean()))
    assert 0 < examination < 1


# Plasticine, plasticine/metrics.py
def plasticine_stable_rank(x):
    singular = torch.linalg.svdvals(x)
    return int((singular.cumsum(-1) / singular.sum() < 0.99).sum()) + 1


def plasticine_effective_rank(x):
    share = torch.linalg.svdvals(x)
    share = share / share.sum()
    share = share[share > 0]
    return float(torch.exp(-(share * share.log()).sum()))


# loss-of-plasticity, lop/utils/miscellaneous.py
def lop_approximate_rank(x, prop=0.99):
    squares = torch.linalg.svdvals(x).square()
    squares, held, rank = squares / squares.sum(), 0.0, 0
    while held < prop:
        held += float(squares[rank])
        rank += 1
    return rank


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Mish])
def test_ranks_and_norms_of_the_last_hidden_layer_are_those_of_the_literature(activation):
    net = mlp(activation)
    last = features(net)[-1].double()
    examination = metrics(net, DATA)
    singular = torch.linalg.svdvals(last)
    assert examination["srank"] == plasticine_stable_rank(last)
    assert examination["effective rank"] == pytest.approx(plasticine_effective_rank(last), rel=1e-5)
    assert examination["approximate rank"] == lop_approximate_rank(last)
    assert examination["stable rank"] == pytest.approx(
        float(singular.square().sum() / singular[0] ** 2), rel=1e-5
    )
    assert examination["feature norm"] == pytest.approx(float(last.norm(dim=1).mean()), rel=1e-5)


def test_weights_and_gradients_are_those_of_the_literature():
    net, start = mlp(), mlp(seed=1)
    parameters = [p.detach().double() for p in net.parameters()]
    examination = metrics(net, DATA, start=start)
    count = sum(p.numel() for p in parameters)
    assert examination["weight magnitude"] == pytest.approx(
        sum(float(p.abs().sum()) for p in parameters) / count
    )
    assert examination["weight norm"] == pytest.approx(
        math.sqrt(sum(float(p.square().sum()) for p in parameters))
    )
    apart = [
        float((p - q.detach()).square().sum()) for p, q in zip(parameters, start.parameters(), strict=True)
    ]
    assert examination["distance"] == pytest.approx(math.sqrt(sum(apart)))
    assert metrics(net, DATA, start=start.state_dict())["distance"] == examination["distance"]
    assert math.isnan(examination["gradient norm"])
    net(DATA).sum().backward()
    total = torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)
    assert metrics(net, DATA)["gradient norm"] == pytest.approx(float(total))


def test_the_gradient_norm_is_that_of_complex_weights_too():
    net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    net.phase = nn.Parameter(torch.tensor(2j))
    (net.phase * net(DATA).sum()).abs().backward()
    expected = sum(float(p.grad.abs().square().sum()) for p in net.parameters()) ** 0.5
    assert metrics(net, DATA)["gradient norm"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "module", [nn.Tanh(), nn.Sigmoid(), nn.Hardtanh(), nn.ReLU6(), nn.Softsign(), nn.Hardsigmoid()]
)
def test_a_unit_far_out_on_all_inputs_is_saturated(module):
    net = nn.Sequential(nn.Linear(5, 8), module, nn.Linear(8, 1))
    net[0].bias.data[:3] = torch.tensor([100.0, 60.0, -60.0])
    if isinstance(module, nn.Softsign):  # x / (1 + |x|) is no single operation, and not known to saturate
        assert not math.isnan(metrics(net, DATA)["saturated"])
    else:
        assert metrics(net, DATA)["saturated"] == pytest.approx(3 / 8)


def test_saturation_is_a_slope_below_a_hundredth():
    values = torch.linspace(-6, 6, 500).view(-1, 1)
    for function in (torch.tanh, torch.sigmoid, F.gelu, F.silu):
        x = values.double().requires_grad_()
        (slope,) = torch.autograd.grad(function(x).sum(), x)
        for value, derivative in zip(values, slope.flatten().tolist(), strict=True):
            if abs(abs(derivative) - 0.01) < 2e-3:
                continue
            net = nn.Sequential(nn.Linear(1, 1), Function(function))
            nn.init.zeros_(net[0].weight)
            net[0].bias.data[0] = value
            break
        examination = metrics(net, torch.randn(40, 1))["saturated"]
        assert examination == float(abs(derivative) < 0.01)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_dead_units_and_ranks_are_those_that_examine_finds():
    net = mlp()
    measures = metrics(net, DATA, layers=True)
    layers = examine(net, DATA[:2], DATA, measures=["activity", "plasticity"]).layers
    for kind, masks in {
        "dead": [layer.activity.dead for layer in layers],
        "dormant": [layer.plasticity.dormant for layer in layers],
    }.items():
        shares = [float(mask.double().mean()) for mask in masks]
        assert [measures[f"{kind}/{layer.name}"] for layer in layers] == pytest.approx(shares)
        assert measures[kind] == pytest.approx(float(torch.cat(masks).double().mean()))
    for layer in layers:
        assert measures[f"effective rank/{layer.name}"] == pytest.approx(layer.plasticity.effective_rank)
        assert measures[f"stable rank/{layer.name}"] == pytest.approx(layer.plasticity.stable_rank)
    assert measures["worst dead"] == max(measures["dead/0"], measures["dead/2"]) > measures["dead"]


def test_active_is_the_share_of_positive_outputs():
    net = mlp()
    shares = [(x > 0).double().mean(0) for x in features(net)]
    assert metrics(net, DATA)["active"] == pytest.approx(float(torch.cat(shares).mean()))


class Phases(nn.Module):
    """CReLU as others write it."""

    def forward(self, x):
        return torch.cat([F.relu(x), F.relu(-x)], 1)


@pytest.mark.parametrize("crelu", [CReLU, Phases])
def test_the_two_phases_of_a_unit_are_one_unit(crelu):
    net = nn.Sequential(nn.Linear(5, 4), crelu(), nn.Linear(8, 2))
    net[0].weight.data[0], net[0].bias.data[0] = 0.0, 0.0  # always 0
    net[0].bias.data[1] = -10.0  # on one side only, and linear there
    examination = metrics(net, [DATA[:120], DATA[120:]], layers=True)
    outputs = net[1](net[0](DATA)).detach().double()
    assert examination["dead/0"] == examination["saturated/0"] == examination["dormant/0"] == 0.25
    assert examination["srank"] == plasticine_stable_rank(outputs)
    assert examination["effective rank"] == pytest.approx(plasticine_effective_rank(outputs), rel=1e-5)


def test_batches_add_up():
    net = mlp(nn.Tanh)
    whole = metrics(net, DATA, layers=True)
    parts = metrics(net, iter(DATA.split(30)), layers=True)
    assert parts == pytest.approx(whole, rel=1e-6, nan_ok=True)


FORMS = {
    "array": DATA.numpy(),
    "float64": DATA.double(),
    "pair": (DATA, torch.zeros(200).long()),
    "loader": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(DATA, torch.zeros(200)), 50),
    "dataset": torch.utils.data.TensorDataset(DATA),
    "list": list(DATA.split(64)),
    "mapping": {"input": DATA, "labels": torch.zeros(200)},
    "arguments": (DATA,),
    "pairs of arrays": [(DATA.numpy(), np.zeros(200))],
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_come_in_any_form(form):
    net = mlp()
    assert metrics(net, FORMS[form]) == pytest.approx(metrics(net, DATA), rel=1e-5, nan_ok=True)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, x, y, scale=1.0):
        return self.head((scale * self.layer(x + y)).relu())


class TakesOneMapping(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = Several()

    def forward(self, batch):
        return self.several(batch["x"], batch["y"])


def test_a_network_of_several_arguments_or_of_one_mapping_is_measured():
    net, y = Several(), DATA + 1
    expected = metrics(net, (DATA, y))
    assert metrics(net, {"x": DATA, "y": y}) == pytest.approx(expected, nan_ok=True)
    whole = TakesOneMapping()
    whole.several = net
    assert metrics(whole, {"x": DATA, "y": y})["active"] == expected["active"]
    with pytest.raises(TypeError, match=r"takes \(x, y, scale\)"):
        metrics(net, {"z": DATA})


class Agent(nn.Module):
    """As cleanrl's: methods and no forward."""

    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(nn.Tanh), mlp(nn.Tanh, seed=1)

    def get_action_and_value(self, x):
        logits = self.actor(x)
        return logits.argmax(1), self.critic(x)


def test_an_agent_without_forward_is_measured_by_one_of_its_methods():
    agent = Agent()
    by_name = metrics(agent, DATA, call="get_action_and_value", layers=True)
    by_function = metrics(agent, DATA, call=lambda agent, x: agent.get_action_and_value(x), layers=True)
    assert by_name == pytest.approx(by_function, nan_ok=True)
    assert {"dead/actor.0", "dead/critic.2"} <= by_name.keys()
    with pytest.raises(TypeError, match="call="):
        metrics(agent, DATA)
    with pytest.raises(ValueError, match="get_value"):
        metrics(agent, DATA, call="get_value")


def test_the_entropy_of_a_policy_is_that_of_its_logits():
    agent = Agent()
    logits = agent.actor(DATA).detach()
    entropy = float(torch.distributions.Categorical(logits=logits).entropy().mean())
    for policy in (
        "actor",
        lambda agent, x: agent.actor(x),
        lambda agent, x: torch.distributions.Categorical(logits=agent.actor(x)),
    ):
        examination = metrics(agent, DATA, call="get_action_and_value", policy=policy)
        assert examination["policy entropy"] == pytest.approx(entropy, rel=1e-5)
    with pytest.raises(AttributeError):
        metrics(agent, DATA, call="get_action_and_value", policy="head")


def test_every_key_is_always_there_and_unknown_is_nan():
    for net, data in ((mlp(), DATA), (mlp(), DATA[:3]), (nn.Linear(5, 2), DATA)):
        assert metrics(net, data).keys() == set(KEYS)
    few = metrics(mlp(), DATA[:3])
    assert math.isnan(few["dead"])
    assert math.isnan(few["saturated"])
    assert few["dormant"] > 0  # by its definition, on any number of inputs


def test_tokens_count_as_inputs():
    net = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 6), nn.GELU(), nn.Linear(6, 11))
    assert metrics(net, torch.randint(0, 11, (2, 32)))["dead"] == 0.0


def test_calls_of_one_module_are_one_layer():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.activation = nn.Linear(5, 6), nn.ReLU()

        def forward(self, x):
            return self.activation(self.body(x)) - self.activation(self.body(-x))

    examination = metrics(Siamese(), DATA, layers=True)
    assert "dead/body" in examination
    assert not [key for key in examination if "#" in key]


def test_a_network_is_left_as_it_was():
    net = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 2)
    )
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    metrics(net, DATA)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_under_autocast_measures_are_computed_in_full_precision():
    net = mlp()
    with torch.autocast("cpu", torch.bfloat16):
        examination = metrics(net, DATA)
    assert examination["effective rank"] == pytest.approx(metrics(net, DATA)["effective rank"], rel=0.1)
    assert examination["weight norm"] == metrics(net, DATA)["weight norm"]
