import re
from pathlib import Path

import pytest

from relucid.experiments._catalog import studies

RESULTS = str(Path(__file__).parents[2] / "results")


def test_the_claims_of_one_paper_are_shown_with_outcome_and_effects(relucid, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = relucid("claims", "structure", "--results", RESULTS)
    assert status == 0
    assert "structure Section 7.2  ResNet-110 needs warm-up" in out
    assert re.search(r"HB-Net-110 minus ResNet-110, trained %: 100 \[38.6, 100\], p = 0.0079: confirmed", out)
    assert "more: relucid show structure/depth" in out
    assert "crelu Table" not in out


def test_without_results_the_store_is_asked(relucid, tmp_path):
    (tmp_path / "runs").mkdir()
    status, out, err = relucid("claims", "ours", "--store", str(tmp_path / "runs"))
    assert status == 0
    assert f"no results in {tmp_path / 'runs'}" in err
    claims = [claim for study in studies("ours") for claim in study.claims if claim.kind == "experiment"]
    assert out.count("Not run: relucid run") == len(claims)
    assert "Confirmed" not in out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("gpm",), "did you mean 'gmp'?"),
        (("--results", "nowhere"), "there is no directory nowhere"),
    ],
)
def test_unknown_papers_and_directories_are_refused(relucid, arguments, message):
    status, _, err = relucid("claims", *arguments)
    assert status != 0
    assert message in err
