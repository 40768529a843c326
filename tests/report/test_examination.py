import re
import shlex
from collections import OrderedDict
from html import unescape
from itertools import pairwise

import pytest
import torch
from torch import nn

from relucid.inspect import examine
from relucid.report.examination import (
    Provenance,
    boundaries,
    examination_page,
    figures,
    overview,
    remedies,
    sides,
    stages_of,
    words,
)
from relucid.report.page import number

PLANTED = "<script>alert('planted')</script>"  # torch.fx takes no double quotes in a name


@pytest.fixture
def network():
    """Convolutions of which half are the negatives of the others; a layer with dead units; a planted name."""
    conv = nn.Conv2d(3, 8, 3)
    conv.weight.data[4:] = -conv.weight.data[:4]
    hidden = nn.Linear(8, 6)
    hidden.bias.data[:2], hidden.bias.data[2:3] = -100.0, 100.0
    net = nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), hidden, nn.ReLU())
    net.add_module(PLANTED, nn.Linear(6, 5))
    net.add_module("last", nn.ReLU())
    net.add_module("out", nn.Linear(5, 2))
    return net


@pytest.fixture
def inputs():
    return torch.randn(64, 3, 8, 8)


@pytest.fixture
def found(network, inputs):
    return examine(network, inputs)


@pytest.fixture
def values(network, inputs):
    """What each rectified layer is given, (units, inputs)."""
    return [network[:end](inputs).transpose(0, 1).flatten(1) for end in (1, 5, 7)]


def test_everything_is_escaped(found, without_library):
    page = without_library(examination_page(found, Provenance(PLANTED, PLANTED, "1,3,8,8", PLANTED)))
    assert "&lt;script&gt;alert(&#39;planted&#39;)" in page
    assert PLANTED not in page


def test_the_page_is_small_and_shows_layer_by_layer(found, without_library):
    page = without_library(examination_page(found, Provenance("net:build", example="1,3,8,8")))
    assert len(page) < 200_000
    assert page.count('<details class="layer"') == 3
    for layer in range(3):
        assert f'href="#layer-{layer}"' in page
        assert f'<p id="layer-{layer}"' in page
    assert "No data was given" in page


def test_words_count_units_and_pairs(found, values):
    dead, on = (
        sum(int(side(value).all(1).sum()) for value in values) for side in (lambda v: v <= 0, lambda v: v > 0)
    )
    assert dead >= 2
    assert words(found) == (
        f"3 rectified layers with 19 units: {dead} are dead and {on} are always on. "
        "Of 19 filters 8 have an opposite partner that chance does not explain."
    )


def test_each_conversion_comes_with_one_command_for_all_its_layers(found):
    subject = Provenance("net.py:build", checkpoint="my weights.pt", example="1,3,8,8", data="x.npy")
    commands = [shlex.split(remedy.command) for remedy in remedies(found, subject) if remedy.command]
    for command in commands:
        assert command[:3] == ["relucid", "convert", "net.py:build"]
        assert command[3:7] == ["--checkpoint", "my weights.pt", "--example", "1,3,8,8"]
    layers = {
        command[command.index("--to") + 1]: {after for word, after in pairwise(command) if word == "--layers"}
        for command in commands
    }
    assert layers.keys() == {"crelu"}
    assert "4" in layers["crelu"]
    assert {command[-1] for command in commands} == {"converted-crelu"}


def planted(network):
    """The network with dead units, units that are never off, and opposite pairs in its first layers."""
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)][:4]
    norms = {name: m for name, m in network.named_modules() if isinstance(m, nn.BatchNorm2d)}
    for layer in layers:
        half = len(layer.weight) // 2
        layer.weight.data[half:] = -layer.weight.data[:half]
    for layer in [*norms.values()] or layers:
        layer.bias.data[:2], layer.bias.data[2:4] = -90.0, 90.0
    return network.eval()


class Block(nn.Module):
    """A residual block, as it is usually written: one ReLU, in place, for all sums."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.downsample(x))


class Fire(nn.Module):
    """A SqueezeNet block: its names hold those of conversions, its ReLUs are functions."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, 8, 1)
        self.expand1x1, self.merge3x3 = nn.Conv2d(8, outputs, 1), nn.Conv2d(8, outputs, 3, padding=1)

    def forward(self, x):
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.expand1x1(x)), torch.relu(self.merge3x3(x))], 1)


def head(channels):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


NETWORKS = {
    "residual": lambda: nn.Sequential(Block(3, 8), Block(8, 8), *head(8)),
    "squeeze": lambda: nn.Sequential(Fire(3, 8), Fire(16, 8), *head(16)),
    "vgg": lambda: nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(8 * 16, 12), nn.ReLU6(), nn.Linear(12, 6), nn.LeakyReLU(), nn.Linear(6, 2)),
    ),
}


@pytest.mark.parametrize("name, suggested", [("residual", 0), ("squeeze", 1), ("vgg", 0)])
def test_every_suggested_command_of_a_page_runs_and_converts(name, suggested, relucid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network = planted(NETWORKS[name]())
    torch.save(network, "net.pt")
    (tmp_path / "net.py").write_text("import torch\nbuild = torch.load('net.pt', weights_only=False)")
    found = examine(network, torch.randn(40, 3, 8, 8))
    page = examination_page(found, Provenance("net.py:build", example="9,3,8,8"))
    commands = re.findall(r"<pre>(relucid convert .*)", page)
    assert len(commands) == suggested  # none with batch norm
    for command in commands:
        words = shlex.split(unescape(command))
        status, shown, complaint = relucid(*words[1:])
        assert status == 0, complaint
        assert "changed: " in shown
        assert (tmp_path / words[-1] / "conversion.json").is_file()


def test_no_finding_is_left_out_and_those_of_one_remedy_stand_together(found):
    groups = [remedy.sentences for remedy in remedies(found, Provenance("net:build"))]
    assert sorted(sentence for group in groups for sentence in group) == sorted(
        finding.sentence for finding in found.findings
    )
    assert max(map(len, groups)) >= 2


def test_filters_of_images_are_drawn_beside_their_partners(found):
    titles = [[figure.title for figure in figures(layer)] for layer in found.layers]
    assert titles[0][0] == "Filters, each beside its most opposite one"
    assert titles[1] == [
        "Pairs against random filters",
        "Activity on 64 inputs",
        "Boundaries against the data",
    ]


def test_every_unit_is_drawn_by_its_activity(found, values):
    traces = sides(found.layers[1].activity).plot.data
    shown = {
        int(unit): share for trace in traces for unit, share in zip(trace.customdata, trace.y, strict=True)
    }
    share = (values[1] > 0).double().mean(1)
    assert [shown[unit] for unit in range(6)] == pytest.approx((100 * share).tolist())
    dead = next(trace for trace in traces if trace.name.startswith("dead"))
    assert list(dead.customdata) == (share == 0).nonzero().flatten().tolist()
    for trace in traces:
        assert sorted(trace.y, key=float) == [y for _, y in sorted(zip(trace.x, trace.y, strict=True))]


def test_boundaries_are_drawn_themselves_where_they_are_lines():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU())
    plane, space = examine(net, torch.randn(40, 2)).layers
    assert boundaries(plane.boundary, plane.activity).title == "Boundaries"
    assert boundaries(space.boundary, space.activity).title == "Boundaries against the data"


def test_the_figure_of_boundaries_says_what_the_table_says():
    net = nn.Sequential(nn.Linear(3, 6), nn.ReLU())
    net[0].bias.data = torch.tensor([0.0, 0.1, 1e3, 1e4, -1e5, 0.2])
    found = examine(net, torch.randn(40, 3))
    plot = boundaries(found["0"].boundary, found["0"].activity).plot
    assert [bars.name for bars in plot.data] == ["within the data (3)", "outside (3)"]
    assert found.rows()[0]["outside the data"] == "3"
    within, outside = (bars.x for bars in plot.data)
    assert max(within) <= 1 < min(outside)
    assert max(outside) <= plot.layout.xaxis.range[1]  # none is off the axis, however far


def deep():
    """A network of three stages with seven layers each, behind a common prefix."""
    stages = [nn.Sequential(*(m for _ in range(7) for m in (nn.Linear(4, 4), nn.ReLU()))) for _ in range(3)]
    named = OrderedDict(zip(("low", "mid", "top"), stages, strict=True))
    return nn.Sequential(OrderedDict(body=nn.Sequential(named)))


def test_long_networks_are_grouped_by_stage(without_library):
    found = examine(deep(), torch.randn(40, 4))
    stages = stages_of(found)
    assert [(stage.name, len(stage.sections)) for stage in stages] == [("low", 7), ("mid", 7), ("top", 7)]
    table = overview(found, stages)
    assert list(table.links) == ["stage-0", "stage-1", "stage-2"]
    labels = table.head
    dead = sum(int(layer.activity.dead.sum()) for layer in found.layers)
    assert sum(number(row[labels.index("dead")]) for row in table.rows) == dead
    page = without_library(examination_page(found, Provenance("net:build")))
    assert page.count('<details class="stage">') == 3
    assert len(set(re.findall(r'id="layer-\d+"', page))) == 21


class Shared(nn.Module):
    """A layer that is rectified many times."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.fc(x)
        return sum((hidden + shift).relu() for shift in range(17))


def test_many_activations_of_one_layer_are_grouped_by_the_dozen():
    names = [stage.name for stage in stages_of(examine(Shared(), torch.randn(40, 4)))]
    assert names == ["layers 1 to 12", "layers 13 to 17"]


def test_columns_are_explained(found, without_library):
    page = without_library(examination_page(found, Provenance("net:build")))
    for name, meaning in found.columns().items():
        assert f"<dt>{name}</dt><dd>{meaning}</dd>" in page


def test_a_page_is_saved_from_python_with_calls_and_not_overwritten(found, tmp_path):
    path = tmp_path / "page.html"
    found.save(path, name="my network")
    page = unescape(path.read_text(encoding="utf-8"))
    assert "What my network has learned" in page
    assert str(found.suggestions()[0]) in page
    assert "relucid convert" not in page
    with pytest.raises(ValueError, match="exists: overwrite=True overwrites it"):
        found.save(path)
    found.save(path, overwrite=True)


def test_the_page_states_that_inputs_were_too_few(network, without_library):
    page = without_library(
        examination_page(examine(network, torch.randn(3, 3, 8, 8)), Provenance("net:build"))
    )
    assert "Too few images to judge which units are dead: 3 images x 36 positions; at least 35 images" in page
    assert "are dead and" not in page


def test_layers_link_to_their_sections_and_sort_by_number(found):
    (stage,) = stages_of(found)
    table = stage.grid
    assert list(table.links) == ["layer-0", "layer-1", "layer-2"]
    labels = table.head
    assert [number(row[labels.index("units")]) for row in table.rows] == [8, 6, 5]
    assert number(table.rows[0][labels.index("paired")]) == 100


def test_a_network_without_rectified_layers_has_a_page_too(without_library):
    page = without_library(
        examination_page(examine(nn.Linear(2, 2), torch.randn(1, 2)), Provenance("net:build"))
    )
    assert "No layer of this network is rectified." in page
    assert "feeds the output" in page
