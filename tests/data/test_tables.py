import math

import pytest
import torch

from relucid.data import banana, levy, levy_function, uci


def write_yacht(place, rows=308, columns=7):
    path = place / "uci" / "yacht.txt"
    path.parent.mkdir()
    lines = [" ".join(f"{row}.{column}" for column in range(columns)) for row in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_banana(place, last="1.0,2.0,1"):
    path = place / "banana.csv"
    rows = [f"{i},{-i},{1 if i % 2 else -1}" for i in range(5299)]
    path.write_text("\n".join(["At1,At2,Class", *rows, last]))
    return path


def test_levy_is_the_function_and_noise_of_a_tenth():
    data = levy(points=20_000, seed=3)
    noise = data.train.targets - levy_function(data.train.inputs)
    assert abs(noise.std().item() - 0.1) < 0.002
    assert data.train.inputs.abs().max() <= 10
    assert data.test.targets.equal(levy_function(data.test.inputs))
    assert data.test.inputs.diff(dim=0).sub(0.1).abs().max() < 1e-12


@pytest.mark.parametrize("x, value", [(1.0, 0.0), (5.0, 1.0), (3.0, 1.25), (-9.0, 7.25)])
def test_levy_function_has_the_values_of_the_closed_form(x, value):
    assert levy_function(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(value, abs=1e-12)


def test_a_split_of_a_uci_set_divides_its_rows_80_to_20_and_follows_from_its_number(place):
    write_yacht(place)
    data = uci("yacht", split=4)
    assert (len(data.train), len(data.test)) == (246, 62)
    assert data.train.inputs.shape[1] == 6
    firsts = torch.cat([data.train.inputs, data.test.inputs])[:, 0].floor()
    assert sorted(firsts.tolist()) == list(range(308))
    assert ((data.train.targets - data.train.inputs[:, :1] - 0.6).abs() < 1e-9).all()
    assert uci("yacht", split=4).test.inputs.equal(data.test.inputs)
    assert not uci("yacht", split=5).test.inputs.equal(data.test.inputs)


def test_banana_is_800_points_to_train_on_and_200_to_test_of_two_classes(place):
    write_banana(place)
    data = banana(seed=1)
    assert (len(data.train), len(data.test)) == (800, 200)
    assert set(data.train.targets.tolist()) == {0, 1}
    assert ((data.train.inputs[:, 0] % 2).long() == data.train.targets).float().mean() > 0.99


@pytest.mark.parametrize(
    "name, rows, features, mean",
    [
        ("boston", 506, 13, 22.53),
        ("concrete", 1030, 8, 35.82),
        ("energy", 768, 8, 22.31),
        ("power", 9568, 4, 454.37),
        ("wine", 1599, 11, 5.64),
        ("yacht", 308, 6, 10.50),
    ],
)
@pytest.mark.usefixtures("real")
def test_real_uci_sets_have_the_published_size_and_the_known_mean_of_the_target(name, rows, features, mean):
    data = uci(name)
    assert len(data.train) == math.floor(rows * 0.8)
    assert data.test.inputs.shape[1] == features
    targets = torch.cat([data.train.targets, data.test.targets])
    assert len(targets) == rows
    assert targets.mean().item() == pytest.approx(mean, abs=0.006)


@pytest.mark.usefixtures("real")
def test_the_real_banana_set_has_45_percent_of_its_points_in_the_second_class():
    data = banana(points=5300)
    targets = torch.cat([data.train.targets, data.test.targets])
    assert targets.float().mean().item() == pytest.approx(2376 / 5300, abs=1e-6)
