import json
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import relucid.inspect
from relucid.convert import to_crelu
from relucid.inspect import (
    EXTENDED_MEASURES,
    MEASURES,
    Examination,
    Finding,
    Suggestion,
    examine,
    pairing,
)
from relucid.nn import GeometricLinear, Pairwise
from relucid.nn.activation import AVR, CReLU


def settle(net, data):
    """Give every batch norm the statistics of the data."""
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    with torch.no_grad():
        net.train()(data)
    return net.eval()


def planted(seed):
    """A network with planted units, its data, and what is planted: {layer: {kind: units}}."""
    torch.manual_seed(seed)
    data = torch.randn(64, 3, 10, 10)
    net = nn.Sequential(
        *(nn.Conv2d(3, 24, 3), nn.ReLU(inplace=True)),
        *(nn.Conv2d(24, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 20),
            nn.BatchNorm1d(20),
            nn.ReLU(),
            nn.Linear(20, 5),
        ),
    )
    net[0].bias.data.zero_()
    net[0].bias.data[2] = -20
    net[0].bias.data[11] = 20
    net[0].weight.data[7] = -0.5 * net[0].weight.data[3]  # a pair
    net[2].weight.data[30] = net[2].weight.data[1]  # a pair, since the norm turns one of them round
    net[3].weight.data[30] = -1.0
    net[2].weight.data[12] = 2 * net[2].weight.data[5]  # twins
    net[3].bias.data[4] = -1e3
    net[3].bias.data[9] = 1e3
    net[8].bias.data[0] = -100
    settle(net, data)
    expected = {
        "0": {"paired": [(3, 7)], "dead": [2], "always on": [11], "outside the data": [2, 11]},
        "2": {
            "paired": [(1, 30)],
            "twins": [5, 12],
            "dead": [4],
            "always on": [9],
            "outside the data": [4, 9],
        },
        "7": {"dead": [0]},
    }
    return net, data, expected


@pytest.mark.parametrize("seed", range(5))
def test_what_is_planted_is_found_and_nothing_else(seed):
    net, data, expected = planted(seed)
    examination = examine(net, data[:2], data.split(16))
    by_layer = {layer.name: {} for layer in examination.layers}
    everything = [
        f
        for layer in examination.layers
        for m in layer.measured.values()
        for f in m.findings(layer.rectified)
    ]
    for finding in everything:
        evidence = finding.evidence.get("pairs", finding.evidence.get("units"))
        by_layer[finding.layer][finding.kind] = evidence
    assert by_layer == expected


def test_findings_come_with_evidence_and_a_conversion():
    net, data, _ = planted(0)
    net[0].bias.data[12:14] = -1e4
    examination = {(f.layer, f.kind): f for f in examine(net, data[:2], data.split(16)).findings}
    pair, dead = examination["0", "paired"], examination["0", "dead"]
    assert pair.sentence == "0: 8% of filters have an opposite partner (by chance: 0.0%)"
    assert (pair.evidence["saved"], pair.suggestion) == (27 + 1, None)
    assert dead.suggestion == Suggestion("to_crelu", ("0",), "expand")
    assert dead.sentence == "0: 3 of 24 units are dead on 64 images; to_crelu lets them learn again"
    assert (dead.severity, dead.share) == ("warning", 3 / 24)
    assert dead.evidence["rate_below"] == pytest.approx(0.0566, abs=1e-4)


def test_a_few_units_are_not_a_finding_and_the_most_severe_comes_first():
    net = nn.Sequential(
        nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8), nn.ReLU()
    )
    for layer in net[::2]:
        layer.bias.data.zero_()
    net[0].bias.data[0] = -100.0  # one dead unit of 64
    net[2].bias.data[:32] = 100.0  # half of them never off
    net[4].bias.data[0] = -100.0  # one dead unit of 8
    examination = examine(net, torch.randn(64, 4))
    assert {(f.layer, f.kind) for f in examination.findings if f.layer == "0"} == set()
    assert [f.severity for f in examination.findings] == sorted(
        (f.severity for f in examination.findings), reverse=True
    )
    assert (examination.findings[0].layer, examination.findings[0].kind) == ("4", "dead")


def test_nothing_is_prescribed_for_a_layer_with_batch_norm():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    net[1].bias.data[:4] = -100.0
    examination = examine(net, torch.randn(64, 3, 8, 8))
    assert "0: 4 of 8 units are dead on 64 images" in examination.sentences()
    assert not examination.suggestions()


def test_at_most_ten_findings_are_printed_in_80_columns():
    names = [f"stage{i}.block{j}.conv1" for i in range(4) for j in range(5)]
    findings = tuple(
        Finding(name, "dead", f"{name}: 9 of 64 units are dead on 2,048 images", {}) for name in names
    )
    lines = Examination((), findings, ()).notes()
    assert lines[-1] == "and 10 more findings"
    assert len(lines) == 12
    assert max(map(len, lines)) <= 80


def test_batches_are_gathered_and_labels_left_aside():
    net, data, _ = planted(1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, torch.zeros(64)), batch_size=7)
    streamed, at_once = examine(net, data[:1], loader), examine(net, data)
    for one, other in zip(streamed.layers, at_once.layers, strict=True):
        torch.testing.assert_close(one.activity.active, other.activity.active)
        assert one.activity.shell == pytest.approx(other.activity.shell, rel=1e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kernel, stride, padding", [(3, 2, 1), (1, 1, 0), (1, 2, 0), (1, 1, 1), (1, 2, 1)])
def test_the_shell_holds_the_lengths_of_the_patches_that_a_filter_sees(kernel, stride, padding, layout):
    conv = nn.Conv2d(4, 6, kernel, stride=stride, padding=padding, groups=2)
    x = torch.randn(2, 4, 7, 7).to(memory_format=layout)
    patches = [F.unfold(half, kernel, padding=padding, stride=stride) for half in x.chunk(2, 1)]
    lengths = torch.cat([patch.norm(dim=1) for patch in patches])
    shell = examine(nn.Sequential(conv, nn.ReLU()), x)["0"].activity.shell
    assert shell == pytest.approx((float(lengths.min()), float(lengths.max())), rel=1e-5)


@pytest.mark.parametrize("activation", [CReLU(), AVR()])
def test_units_with_both_phases_are_never_dead_but_may_have_one_phase_only(activation):
    net = nn.Sequential(nn.Linear(5, 8), activation)
    net[0].bias.data[:2] = torch.tensor([-100.0, 100.0])
    (finding,) = examine(net, torch.randn(200, 5)).findings
    assert (finding.kind, finding.evidence["units"]) == ("one phase", [0, 1])


def test_a_layer_that_undoes_the_split_of_a_crelu_is_found():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), CReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 6))
    half = torch.randn(6, 72)
    net[4].weight.data = torch.cat([half, -half], 1)
    examination = examine(net, torch.randn(32, 3, 8, 8))
    assert [f.kind for f in examination.findings] == ["undone split"]
    assert examination["0"].phase_correlation["4"].pair[0] == pytest.approx(1)


def test_pairs_in_a_sum_of_branches_are_measured_but_cannot_be_merged():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(30, 8), nn.Linear(30, 8)

        def forward(self, x):
            return torch.relu(self.a(x) + self.b(x))

    net = Block()
    net.a.weight.data[3] = -net.a.weight.data[6]
    examination = examine(net, torch.randn(100, 30))
    assert examination["a + b"].pairing["a"].mutual == [(3, 6)]
    assert not examination.findings
    assert examination["a + b"].boundary is None


def test_pairing_by_examination_is_pairing_of_the_weights():
    net = nn.Sequential(nn.Conv2d(4, 12, 3, groups=2), nn.ReLU())
    examination = examine(net, torch.randn(2, 4, 8, 8))["0"].pairing["0"]
    torch.testing.assert_close(examination.opposite, pairing(net[0].weight, groups=2).opposite)


def test_measures_that_are_not_asked_for_are_not_made():
    layer = examine(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(2, 3), measures=["pairing"])["0"]
    assert layer.pairing
    assert list(layer.measured) == ["pairing"]
    assert layer.activity is layer.boundary is None


def test_a_filter_of_zeros_does_no_harm():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    net[0].weight.data[1] = 0
    examination = examine(net, torch.randn(20, 3), measures=["pairing", "boundary"])
    json.dumps(examination.to_dict(), allow_nan=False)


def test_layers_are_looked_up_by_either_name():
    examination = examine(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(2, 3))
    assert examination["0"] is examination["1"]
    with pytest.raises(KeyError, match="conv"):
        examination["conv"]


def test_the_table_has_a_row_per_layer_then_findings_then_omissions_and_the_dictionary_the_same():
    net, data, _ = planted(2)
    examination = examine(net, data[:2], data.split(16))
    lines = examination.summary().splitlines()
    assert lines[0].split()[:3] == ["layer", "kind", "units"]
    assert [line.split()[0] for line in lines[1:4]] == ["0", "2", "7"]
    assert lines[-1] == "10: feeds the output"
    assert all(f.sentence in lines for f in examination.findings)
    values = json.loads(json.dumps(examination.to_dict(), allow_nan=False))
    assert [layer["name"] for layer in values["layers"]] == ["0", "2", "7"]
    assert values["layers"][1]["sources"][0]["through"] == ["3"]
    assert values["unattributed"] == [{"name": "10", "reason": "feeds the output"}]
    assert len(values["layers"][0]["activity"]["active"]) == 24


def test_a_network_without_rectifications_has_no_layers():
    examination = examine(nn.Linear(3, 2), torch.randn(1, 3))
    assert examination.layers == examination.findings == ()
    assert examination.summary() == "\nweight: feeds the output"


def test_a_rectification_of_the_input_is_examined_though_no_weight_feeds_it():
    net = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
    layer = examine(net, torch.randn(50, 4), measures=MEASURES)["0"]
    assert layer.activity.inputs == 50
    assert layer.boundary is None


def test_a_single_rectified_number_does_no_harm():
    net = nn.Linear(4, 2)
    net.forward = lambda x: torch.relu(nn.functional.linear(x, net.weight).sum())
    (layer,) = examine(net, torch.randn(50, 4)).layers
    assert (layer.rectified.units, layer.activity) == (1, None)


def test_nothing_is_suggested_for_layers_that_conversions_cannot_name():
    net = Pairwise(
        [nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), nn.Sequential(nn.Conv2d(7, 4, 1), nn.ReLU())]
    )
    for stage in net:
        stage[0].bias.data.fill_(-100)
    examination = examine(net, torch.randn(40, 3, 4, 4))
    assert {finding.kind for finding in examination.findings} >= {"dead", "outside the data"}
    assert not examination.suggestions()
    named = examine(nn.Sequential(*net[0], nn.Conv2d(4, 1, 1)), torch.randn(40, 3, 4, 4))
    assert {suggestion.name for suggestion in named.suggestions()} == {"crelu"}


def test_weights_that_are_nan_are_an_error():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    net[0].weight.data[0, 0] = torch.nan
    examination = examine(net, torch.randn(40, 4), measures=["pairing", "boundary", "activity"])
    finding = examination.findings[0]
    assert (finding.kind, finding.severity, finding.evidence) == ("not finite", "error", {"units": [0]})
    assert examination["0"].pairing == {}
    json.dumps(examination.to_dict(), allow_nan=False)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_units_and_an_input_without_a_batch_do_no_harm():
    net = nn.Sequential(nn.Linear(4, 0), nn.ReLU(), nn.Linear(0, 2), nn.ReLU())
    empty, other = examine(net, torch.randn(40, 4)).layers
    assert (empty.measured, other.rectified.units) == ({}, 2)
    assert "computes nothing" in empty.rectified.obstacle
    (layer,) = examine(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), torch.randn(4)).layers
    assert layer.boundary.radius.shape == (6,)


def test_the_size_of_a_complex_number_is_no_rectification():
    net = nn.Linear(4, 3)
    net.forward = lambda x: torch.relu(nn.functional.linear(torch.fft.fft(x).abs(), net.weight))
    assert [layer.rectified.kind for layer in examine(net, torch.randn(40, 4)).layers] == ["relu"]


def test_a_geometric_layer_is_seen_whether_or_not_it_has_kept_its_weight():
    net = nn.Sequential(GeometricLinear(4, 6, activation=nn.ReLU()), nn.Linear(6, 2)).eval()
    data = torch.randn(200, 4)
    with torch.no_grad():
        net(data)  # builds it, and keeps it
    for _ in range(2):
        examination = examine(net, data[:1], data.split(50))["0"]
        assert examination.rectified.sources[0].parameters
        torch.testing.assert_close(examination.boundary.direction, net[0].direction.detach())
        assert examination.activity.shell == pytest.approx(
            (float(data.norm(dim=1).min()), float(data.norm(dim=1).max()))
        )


class Deciding(nn.Module):
    """Takes one of several ways, depending on the values that it is given."""

    def __init__(self, way):
        super().__init__()
        self.first, self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.way = way

    def forward(self, x):
        x, high = torch.relu(self.first(x)), bool(x.mean() > 0)
        if self.way == "a module":
            return torch.relu((self.one if high else self.two)(x))
        if self.way == "a weight":
            return torch.relu(F.linear(x, self.one.weight if high else self.two.weight))
        if self.way == "one more":
            x = torch.relu(self.one(x))
            return torch.relu(self.two(x)) if high else x
        return torch.relu(self.one(x)) if high else torch.relu(self.one(torch.sigmoid(x)))


@pytest.mark.parametrize("way", ["a module", "a weight", "one more", "another operation"])
def test_a_network_that_decides_on_its_values_is_examined_as_it_runs(way):
    model = Deciding(way)
    batches = [torch.randn(6, 4) + sign for sign in (3, 3, -3, -3, 3)]
    examination = examine(model, batches[0][:1], batches, measures=["activity"])["first"].activity
    torch.testing.assert_close(examination.active, (model.first(torch.cat(batches)) > 0).double().mean(0))


def test_the_network_runs_once_over_the_data_for_all_measurements():
    calls = []
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    net.register_forward_pre_hook(lambda *_: calls.append(1))
    seen = []
    examine(
        *(net, torch.randn(2, 4), torch.randn(300, 4)),
        measures=["pairing", "boundary", "activity"],
        progress=lambda *step: seen.append(step),
    )
    assert len(calls) == 1 + 5  # to find the layers, and a batch of 64 at a time
    assert seen == [("layers", 1, 1), *(("batches", number, 5) for number in range(1, 6))]


def test_memory_does_not_grow_with_the_data():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    made, most = [], 0

    def batches():
        nonlocal most
        for _ in range(20):
            batch = torch.randn(128, 64)
            made.append(weakref.ref(batch.untyped_storage()))
            most = max(most, sum(storage() is not None for storage in made))
            yield batch

    examine(net, torch.randn(1, 64), batches(), measures=["activity"])
    assert most <= 4  # the first batches are gone while later ones are read


def test_both_phases_in_the_order_of_groups_are_one_unit_each():
    net, images = nn.Sequential(nn.Conv2d(4, 6, 1), CReLU(groups=2)), torch.randn(64, 4, 5, 5)
    net[0].bias.data[:3] = 100.0
    examination, plain = (examine(each, images)["0"] for each in (net, nn.Sequential(net[0], CReLU())))
    assert (examination.rectified.kind, examination.rectified.units, examination.rectified.doubled) == (
        "crelu",
        6,
        6,
    )
    assert torch.equal(examination.activity.active, plain.activity.active)
    assert examination.activity.row() == {"one phase": "3"}


def test_under_autocast_the_network_is_rounded_and_measurements_are_not():
    net, x = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(100, 5)
    with torch.autocast("cpu", torch.bfloat16):
        examination = examine(net, x, measures=EXTENDED_MEASURES)["0"]
        outputs = net[:2](x)
    assert outputs.dtype == torch.bfloat16
    assert torch.equal(examination.pairing["0"].opposite, pairing(net[0].weight.bfloat16()).opposite)
    norms = x.bfloat16().float().norm(dim=1)
    assert examination.activity.shell == pytest.approx((float(norms.min()), float(norms.max())))
    torch.testing.assert_close(examination.plasticity.singular.float(), torch.linalg.svdvals(outputs.float()))


class Agent(nn.Module):
    """A network that is used through its methods."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.actor, self.critic = nn.Linear(16, 3), nn.Linear(16, 1)

    def get_value(self, x):
        return self.critic(self.body(x))

    def get_action_and_value(self, x, action=None):
        hidden = self.body(x)
        choices = torch.distributions.Categorical(logits=self.actor(hidden))
        action = choices.sample() if action is None else action
        return action, choices.log_prob(action), choices.entropy(), self.critic(hidden)


@pytest.mark.parametrize("call", ["get_action_and_value", lambda agent, x: agent.get_value(x)])
def test_an_agent_is_examined_as_it_is_called(call):
    agent, data = Agent(), torch.randn(100, 4)
    expected = examine(nn.Sequential(*agent.body, agent.critic), data[:2], data, measures=EXTENDED_MEASURES)
    examination = examine(agent, data[:2], data, call=call, measures=EXTENDED_MEASURES)
    assert [layer.name for layer in examination.layers] == ["body.0", "body.2"]
    for ours, theirs in zip(examination.layers, expected.layers, strict=True):
        torch.testing.assert_close(ours.activity.active, theirs.activity.active)
        torch.testing.assert_close(ours.plasticity.singular, theirs.plasticity.singular)
    with pytest.raises(TypeError, match="call="):
        examine(agent, data)


def test_the_entropy_of_a_policy_is_measured_and_certainty_is_a_finding():
    agent, data = Agent(), torch.randn(100, 4)
    options = {"call": "get_action_and_value", "policy": "actor"}
    examination = examine(agent, data, **options)
    expected = agent.get_action_and_value(data)[2].mean().item()
    assert examination.policy_entropy == pytest.approx(expected, rel=1e-5)
    assert "certain policy" not in {finding.kind for finding in examination.findings}
    agent.actor.bias.data[0] = 100.0
    certain = examine(agent, data, **options).findings[0]
    assert (certain.kind, certain.severity) == ("certain policy", "warning")
    assert examine(agent, data, call="get_value").policy_entropy is None


class OneArgument(nn.Module):
    """A network that takes one container."""

    def __init__(self, read):
        super().__init__()
        self.read, self.fc = read, nn.Linear(4, 6)

    def forward(self, batch):
        return self.fc(self.read(batch)).relu()


X, Y = torch.randn(2, 50, 4)
PACKED = nn.utils.rnn.pack_sequence([torch.randn(3, 4)] * 20)


@pytest.mark.parametrize(
    "read, example, rows",
    [
        (lambda b: b["x"] + b["y"], {"x": X, "y": Y}, X + Y),
        (lambda b: b[0] - b[1], ([X, Y],), X - Y),
        (lambda b: b[1].T @ b[0], ((X, torch.ones(50, 40)),), torch.ones(40, 50) @ X),
        (lambda b: b.data, PACKED, PACKED.data),
        (lambda b: b, (X, torch.zeros(50)), X),  # labels follow
    ],
)
def test_an_example_may_be_one_container_or_have_labels(read, example, rows):
    net = OneArgument(read)
    for examination in (
        examine(net, example),
        examine(net, example, [example if len(example) > 1 else example[0]]),
    ):
        expected = (net.fc(rows) > 0).double().mean(0)
        torch.testing.assert_close(examination["fc"].activity.active, expected)


class Branch(nn.Module):
    """A hidden layer with dead units, whose value something else than a layer reads."""

    def __init__(self, use):
        super().__init__()
        self.use, self.first, self.second = use, nn.Linear(4, 8), nn.Linear(8, 8)
        self.head, self.third = nn.Linear(8, 2), nn.Linear(8, 2)
        self.first.bias.data[:4] = -100.0

    def forward(self, x):
        return self.use(self, self.first(x).relu())


USES = {
    "read": (lambda s, h: s.head(h), True),
    "read twice": (lambda s, h: s.head(h) + s.third(s.second(h).relu()), True),
    "returned": (lambda s, h: h, False),
    "returned beside": (lambda s, h: (s.head(h), h), False),
    "added": (lambda s, h: s.head(h + s.second(h)), False),
    "multiplied": (lambda s, h: s.head(h * s.second(h).sigmoid()), False),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_suggested_is_possible(use):
    function, possible = USES[use]
    net, data = Branch(function), torch.randn(100, 4)
    suggestions = [s for s in examine(net, data).suggestions() if "first" in s.layers]
    assert bool(suggestions) is possible
    if suggestions:
        conversion = to_crelu(net, data, layers=["first"])
        assert conversion.changed
    else:
        with pytest.warns(UserWarning, match="no layer"):
            to_crelu(net, data, layers=["first"])


def test_tokens_count_as_inputs():
    net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 6), nn.ReLU())
    assert examine(net, torch.randint(10, (4, 32)))["1"].activity.inputs == 128


def test_the_calls_of_one_module_are_counted_together():
    net = OneArgument(lambda b: b)
    net.forward = lambda x, y: net.fc(x).relu() - net.fc(y).relu()
    (layer,) = examine(net, (X, Y), measures=EXTENDED_MEASURES).layers
    active = torch.cat([net.fc(X), net.fc(Y)])
    torch.testing.assert_close(layer.activity.active, (active > 0).double().mean(0))
    assert str(layer.activity.sample) == str(layer.plasticity.sample) == "50 inputs x 2 positions"
    torch.testing.assert_close(layer.activity.shell[1], torch.cat([X, Y]).norm(dim=1).max().item())


def test_at_most_four_names_that_are_not_examined_are_printed():
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(9)), nn.ReLU(), nn.Linear(4, 1))
    examination = examine(net, X)
    assert len(examination.unattributed) == 9
    assert sum("feeds" in line for line in examination.notes()) == 4
    assert "5 more" in examination.notes()[-1]


@pytest.mark.parametrize("old", ["Gauge", "Seen", "USUAL", "THOROUGH"])
def test_old_names_warn(old):
    with pytest.warns(FutureWarning, match=old):
        assert getattr(relucid.inspect, old) is not None


PAIRS = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.zeros(64))


@pytest.mark.parametrize(
    "given",
    [
        PAIRS.tensors[0].double().numpy(),
        PAIRS.tensors,
        PAIRS,
        torch.utils.data.DataLoader(PAIRS, batch_size=16),
    ],
    ids=["array", "pair", "dataset", "loader"],
)
def test_the_example_may_be_whatever_data_may_be(given):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    (layer,) = examine(net, given).layers
    (expected,) = examine(net, PAIRS.tensors[0]).layers
    assert layer.activity.inputs == 64
    assert torch.equal(layer.activity.active, expected.activity.active)


class Clamping(nn.Module):
    """A network that writes to its weights whenever it runs."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.second = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():
            self.second.weight.clamp_(-0.1, 0.1)
            self.first.bias.data[0] = 5.0
        return self.second(self.relu(self.first(x)))


def test_weights_that_a_network_writes_to_are_put_back():
    net = Clamping()
    before = [p.clone() for p in net.parameters()]
    examine(net, torch.randn(16, 4))
    assert all(map(torch.equal, net.parameters(), before))
