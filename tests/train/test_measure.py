import pytest
import torch
import torch.nn.functional as F

from relucid.train import vote
from relucid.train.measure import error, measures


@pytest.mark.parametrize("k", [1, 5])
def test_the_error_is_the_share_of_targets_that_are_not_among_the_k_largest(k):
    outputs, targets = torch.randn(200, 10, dtype=torch.float64), torch.randint(10, (200,))
    missed = sum(
        int(target) not in sorted(range(10), key=lambda c, row=row: -row[c])[:k]
        for row, target in zip(outputs.tolist(), targets, strict=True)
    )
    assert error(outputs, targets, k).item() == pytest.approx(missed / 2, abs=1e-12)


def test_classification_has_a_loss_and_two_errors_if_there_are_more_than_five_classes():
    outputs, targets = torch.randn(20, 10), torch.randint(10, (20,))
    found = measures("cross_entropy", outputs, targets)
    assert found["loss"].equal(F.cross_entropy(outputs, targets))
    assert found["error"].equal(error(outputs, targets))
    assert found["error5"].equal(error(outputs, targets, 5))
    assert "error5" not in measures("cross_entropy", outputs[:, :5], targets % 5)


def test_one_logit_decides_between_two_classes():
    outputs, targets = torch.tensor([[2.0], [-1.0], [0.5]]), torch.tensor([1, 0, 0])
    found = measures("bce", outputs, targets)
    assert found["error"].item() == pytest.approx(100 / 3)
    two = torch.cat([torch.zeros(3, 1), outputs], 1)
    assert found["loss"].item() == pytest.approx(F.cross_entropy(two, targets).item())


@pytest.mark.parametrize("loss, value", [("mae", 1.5), ("mse", 2.5)])
def test_regression_has_a_loss_and_a_squared_error(loss, value):
    found = measures(loss, torch.tensor([[1.0], [2.0]]), torch.tensor([[2.0], [4.0]]))
    assert found["loss"].item() == value
    assert found["mse"].item() == 2.5


def test_a_vote_is_on_the_mean_of_the_probabilities():
    outputs, targets = torch.randn(3, 50, 4), torch.randint(4, (50,))
    mean = sum(output.softmax(1) for output in outputs) / 3
    assert vote(list(outputs), targets) == pytest.approx(
        100 * (mean.argmax(1) != targets).float().mean().item()
    )


@pytest.mark.parametrize("loss", ["mae", "mse", "bce"])
@pytest.mark.parametrize("outputs, targets", [((6, 1), (6,)), ((6,), (6, 1)), ((6, 1), (6, 1)), ((6,), (6,))])
def test_one_value_per_example_means_the_same_with_and_without_a_second_dimension(loss, outputs, targets):
    x, y = torch.randn(6), torch.randint(2, (6,)).float()
    expected = measures(loss, x, y)
    found = measures(loss, x.view(outputs), y.view(targets))
    assert {name: value.item() for name, value in found.items()} == {k: v.item() for k, v in expected.items()}


def test_classes_may_stand_in_a_column():
    outputs, targets = torch.randn(20, 10), torch.randint(10, (20,))
    found = measures("cross_entropy", outputs, targets.unsqueeze(1))
    assert found == measures("cross_entropy", outputs, targets)
    assert vote([outputs], targets.unsqueeze(1)) == vote([outputs], targets)
