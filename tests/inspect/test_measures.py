"""The contract that every measurement keeps, those of others too."""

import json
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from relucid.inspect import MEASURES, Finding, Measurement, StreamingMeasure, examine


@pytest.fixture(scope="module")
def examination():
    net = nn.Sequential(
        *(
            nn.Conv2d(1, 6, 3),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * 36, 4),
            nn.LeakyReLU(),
        ),
    )
    images = torch.randn(40, 1, 8, 8)
    labels = torch.arange(40) % 3
    return examine(net, images[:2], [(images, labels)], measures=MEASURES)


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_every_measurement_says_and_stores_what_it_found(examination, name):
    measured = [layer.measured[name] for layer in examination.layers if name in layer.measured]
    assert measured or name == "phase_correlation"  # for which there must be a CReLU
    for each in measured:
        assert each.summary()
        json.dumps(each.to_dict(), allow_nan=False)
        assert each.row().keys() <= each.columns.keys()


@pytest.mark.needs("plotly")
def test_figures_of_measurements_show_something(examination):
    figures = examination.figures()
    assert len(figures) > 5
    assert all(figure.data for figure in figures.values())


@dataclass(frozen=True)
class Peak(Measurement):
    """The largest value of each unit."""

    columns = {"peak": "the largest value"}  # noqa: RUF012

    largest: torch.Tensor

    @classmethod
    def measure(cls, layer, network):
        return StreamingPeak()

    def summary(self):
        return f"at most {float(self.largest.max()):.3g}"

    def row(self):
        return {"peak": f"{float(self.largest.max()):.1f}"}

    def figures(self):
        import plotly.graph_objects as go

        return {"peaks": go.Figure(go.Bar(y=self.largest.tolist()))}

    def findings(self, layer):
        yield Finding(layer.layer, "peak", self.summary(), {"units": [int(self.largest.argmax())]})


class StreamingPeak(StreamingMeasure):
    """Keeps the running maximum."""

    def __init__(self):
        self.largest = torch.tensor(-torch.inf)

    def update(self, batch):
        self.largest = torch.maximum(self.largest, batch.by_unit.amax(1))

    def compute(self):
        return Peak(self.largest)


@pytest.mark.needs("plotly")
def test_a_measurement_of_anyone_is_in_the_table_the_findings_the_figures_and_the_json(monkeypatch):
    monkeypatch.setitem(MEASURES, "peak", Peak)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    data = torch.randn(100, 3)
    examination = examine(net, data[:1], data, measures=["peak"])
    largest = net[0](data).amax(0).detach()
    torch.testing.assert_close(examination["0"].measured["peak"].largest, largest)
    assert examination.columns()["peak"] == "the largest value"
    assert examination.rows()[0]["peak"] == f"{float(largest.max()):.1f}"
    assert [finding.evidence for finding in examination.findings] == [{"units": [int(largest.argmax())]}]
    assert list(examination.figures()) == ["0: peaks"]
    assert examination.to_dict()["layers"][0]["peak"]["largest"] == pytest.approx(largest.tolist())
