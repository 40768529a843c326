import pytest

from relucid.models import count_parameters
from relucid.nn import CReLU
from relucid_reproductions.ours import halve as ours

(STUDY,) = ours.STUDIES


@pytest.mark.parametrize("network", ours.NETWORKS)
def test_a_halved_network_has_crelu_and_fewer_parameters(network):
    original, halved = (ours.build(network, flag) for flag in (False, True))
    assert any(isinstance(module, CReLU) for module in halved.modules())
    assert count_parameters(halved) < 0.85 * count_parameters(original)


def test_a_smoke_run_fills_every_cell(smoked, tmp_path):
    results = smoked(STUDY, tmp_path)
    assert all(len(results[cell]) for cell in results.cells)
    assert results[ours.row("vgg", ours.HALVED), "parameters"].mean() < 300_000
