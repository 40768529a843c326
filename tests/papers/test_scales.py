"""What the protocols of scales state, against the configurations that they are generated from."""

from dataclasses import replace

import pytest

from relucid.papers.cifar import REENCODED
from relucid.papers.scales import changes, described
from relucid.studies import Column, Scale, Study


@pytest.fixture
def study():
    """A study whose scale "cpu" is the full one."""
    return Study(
        name="s",
        title="How it compares",
        run=print,
        rows={"old": {"lr": 0.1}, "new": {"lr": 0.2}},
        columns={"error": Column("error"), "folds": Column("error", repeat={"fold": range(10)})},
        scales={"full": Scale({"epochs": 300}), "cpu": Scale({"epochs": 300}, {"seed": range(3)})},
        config={"width": 1, "recipe": {"batch_size": 128, "steps": [0.5, 0.75]}},
        protocol="As published.",
    )


def at_cpu(study, config=(), repeat=(), **fields):
    """The study with another scale "cpu"."""
    return replace(study, scales={**study.scales, "cpu": Scale(dict(config), dict(repeat), **fields)})


def test_a_scale_that_changes_nothing_has_nothing_to_state(study):
    assert changes(study, "cpu") == []
    assert described(study)[0] == study


def test_what_differs_from_full_scale_is_stated_and_nothing_else(study):
    config = {"epochs": 12, "width": 0.25, "recipe": {"batch_size": 64, "steps": [8, 10]}}
    found = at_cpu(study, config, {"seed": range(5), "fold": range(3)})
    assert changes(found, "cpu") == [
        "1/4 of the width",
        "12 epochs",
        "the rate cut after 8 and 10 epochs",
        "batches of 64",
        "3 of the folds",
        "5 seeds",
    ]


def test_the_protocol_of_a_scale_begins_with_what_it_changes(study):
    (found,) = described(at_cpu(study, {"epochs": 12}, protocol="Designed before its runs."))
    assert (
        found.scales["cpu"].protocol
        == "At cpu scale, unlike full scale: 12 epochs. Designed before its runs."
    )
    assert found.at("cpu").protocol == f"As published. {found.scales['cpu'].protocol}"
    assert found.at("full").protocol == "As published."
    assert "full" in found.at("cpu").scales  # by which caveats compare the sizes of networks


def test_what_only_the_full_scale_has_is_stated_as_absent(study):
    config = {"epochs": 300, "decay": "all", "dampening": 0.9, "warmth": 7}
    found = replace(study, scales={"full": Scale(config), "cpu": Scale({"epochs": 300})})
    assert changes(found, "cpu") == ["no dampening", "no weight decay on norms", "no warmth"]


def test_a_setting_without_words_is_named(study):
    assert changes(at_cpu(study, {"epochs": 300, "warmth": 7}), "cpu") == ["warmth 7"]


def test_what_all_rows_add_at_a_scale_is_stated_and_rates_of_their_own_are_not(study):
    rows = {"old": {"pool": 2, "lr": 0.3}, "new": {"pool": 2, "lr": 0.4}}
    found = at_cpu(study, {"epochs": 300}, rows=rows, tuned_by="s-rates")
    assert changes(found, "cpu") == [
        "images averaged over 2x2 pixels",
        "rates by held-out images in s-rates",
    ]


def test_settings_of_a_family_are_stated_only_where_it_is_trained(study):
    config = {"epochs": 300, "residual": {"depth": 20}, "dense": {"depth": 13}, "decay": {"dense": "all"}}
    rows = {"old": {"family": "residual"}, "new": {"family": "dense"}}
    both = at_cpu(replace(study, rows=rows), config)
    assert changes(both, "cpu") == [
        "13 layers (dense)",
        "20 layers (residual)",
        "weight decay on all (dense)",
    ]
    assert changes(at_cpu(replace(study, rows=rows), config, rows={"old": {}}), "cpu") == ["20 layers"]


def test_studies_of_cifar_10_state_how_its_images_were_encoded(study):
    (found,) = described(at_cpu(study, {"epochs": 300, "data": "cifar10"}))
    assert found.protocol == f"As published. {REENCODED}"
