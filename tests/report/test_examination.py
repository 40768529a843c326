import shlex

import pytest
import torch
from torch import nn

from relucid.inspect import examine
from relucid.report.examination import (
    Subject,
    boundaries,
    examination_page,
    figures,
    grid,
    remedies,
    sides,
    words,
)

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
    page = without_library(examination_page(found, Subject(PLANTED, PLANTED, "1,3,8,8", PLANTED)))
    assert "&lt;script&gt;alert(&#39;planted&#39;)" in page
    assert PLANTED not in page


def test_the_page_is_small_and_shows_layer_by_layer(found, without_library):
    page = without_library(examination_page(found, Subject("net:build", example="1,3,8,8")))
    assert len(page) < 200_000
    assert page.count("<details") == 3
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
        f"3 rectified layers with 19 units: {dead} are dead and {on} always on. "
        "Of 19 filters 8 have an opposite partner that chance does not explain."
    )


def test_each_finding_comes_with_the_command_that_addresses_it(found):
    subject = Subject("net.py:build", checkpoint="my weights.pt", example="1,3,8,8", data="x.npy")
    commands = [shlex.split(command) for _, command in remedies(found.findings, subject) if command]
    for command in commands:
        assert command[:3] == ["relucid", "convert", "net.py:build"]
        assert command[3:7] == ["--checkpoint", "my weights.pt", "--example", "1,3,8,8"]
    told = {
        (command[command.index("--to") + 1], command[command.index("--layers") + 1]) for command in commands
    }
    assert {("merge", "0"), ("crelu", "4"), ("geometric", "4")} <= told
    assert {command[command.index("--to") + 1] for command in commands if "--data" in command} == {"merge"}


def test_the_commands_convert_the_layers_that_were_found(found, network, relucid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(network, "net.pt")
    (tmp_path / "net.py").write_text("import torch\nbuild = torch.load('net.pt', weights_only=False)")
    told = [
        command
        for _, command in remedies(found.findings, Subject("net.py:build", example="9,3,8,8"))
        if command
    ]
    for number, command in enumerate(told):
        status, shown, complaint = relucid(*shlex.split(command)[1:-1], str(number))
        assert status == 0, complaint
        assert "changed: " in shown


def test_findings_of_one_remedy_are_told_together(found):
    together = [sentences for sentences, _ in remedies(found.findings, Subject("net:build"))]
    assert sum(map(len, together)) == len(found.findings)
    assert max(map(len, together)) >= 2


def test_filters_of_images_are_drawn_beside_their_partners(found):
    titles = [[figure.title for figure in figures(layer)] for layer in found.layers]
    assert titles[0][0] == "Filters, each with its most opposite one"
    assert titles[1] == [
        "Pairs against random filters",
        "Dead and always-on units",
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
    plane, space = examine(net, torch.randn(9, 2)).layers
    assert boundaries(plane.boundary, plane.activity).title == "Boundaries"
    figure = boundaries(space.boundary, space.activity)
    assert figure.title == "Boundaries against the data"
    assert figure.plot.layout.shapes[0].x1 == pytest.approx(space.activity.shell[1])
    assert len(figure.plot.data[0].x) == 3


def test_layers_link_to_their_sections_and_sort_by_number(found):
    table = grid(found)
    assert [row[0].link for row in table.rows] == ["layer-0", "layer-1", "layer-2"]
    labels = [label for label, _ in table.head]
    assert [row[labels.index("units")].sort for row in table.rows] == [8, 6, 5]
    assert table.rows[0][labels.index("paired")].sort == 100


def test_a_network_without_rectified_layers_has_a_page_too(without_library):
    page = without_library(
        examination_page(examine(nn.Linear(2, 2), torch.randn(1, 2)), Subject("net:build"))
    )
    assert "No layer of this network is rectified." in page
    assert "feeds the output" in page
