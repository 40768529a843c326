import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from relucid._improve._metrics import METRICS, auc, exact_share, f1, score
from relucid.experiments import compare


def in_batches(outputs, targets, size=7):
    return zip(outputs.split(size), targets.split(size), strict=True)


def test_a_metric_over_batches_is_that_over_all_examples():
    outputs, targets = torch.randn(50, 4), torch.randint(4, (50,))
    wrong = (outputs.argmax(1) != targets).sum().item()
    assert score(METRICS["error"], "cross_entropy", in_batches(outputs, targets)) == 100 * wrong / 50
    loss = torch.nn.functional.cross_entropy(outputs, targets).item()
    assert score(METRICS["loss"], "cross_entropy", in_batches(outputs, targets)) == pytest.approx(loss)
    values = torch.randn(50, 4)
    root = (outputs - values).square().mean().sqrt().item()
    assert score(METRICS["rmse"], "mse", in_batches(outputs, values)) == pytest.approx(root)


def test_f1_is_that_of_class_1_or_the_mean_over_classes_or_labels():
    two, many = torch.randint(2, (60,)), torch.randint(3, (60,))
    scores = torch.randn(60, 2)
    assert f1(scores, two) == pytest.approx(f1_score(two, scores.argmax(1)))
    assert f1(scores[:, :1], two) == pytest.approx(f1_score(two, scores[:, 0] > 0))
    outputs = torch.randn(60, 3)
    assert f1(outputs, many) == pytest.approx(f1_score(many, outputs.argmax(1), average="macro"))
    labels = torch.randint(2, (60, 3))
    assert f1(outputs, labels) == pytest.approx(f1_score(labels, outputs > 0, average="macro"))


def test_auc_is_that_of_class_1_or_of_each_class_against_the_rest():
    two, many = torch.randint(2, (60,)), torch.arange(60) % 3
    scores = torch.randn(60, 2)
    assert auc(scores, two) == pytest.approx(roc_auc_score(two, scores.softmax(1)[:, 1]))
    outputs = torch.randn(60, 3)
    expected = roc_auc_score(many, outputs.softmax(1), multi_class="ovr")
    assert auc(outputs, many) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("metric", ["f1", "auc"])
def test_logits_in_one_dimension_are_judged_as_those_in_a_column(metric):
    logits, targets = torch.randn(20), torch.arange(20) % 2
    row, column = (
        score(METRICS[metric], "bce", in_batches(outputs, targets))
        for outputs in (logits, logits.unsqueeze(1))
    )
    assert row == column


def test_pixels_that_do_not_count_are_left_out_of_the_error():
    outputs, targets = torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long)
    outputs[:, 1] = 1.0
    targets[0, :2] = -100
    targets[1] = 1
    assert score(METRICS["error"], "cross_entropy", [(outputs, targets)]) == pytest.approx(100 * 8 / 24)


@pytest.mark.parametrize("count", [7, 360, 719, 10_000])
def test_one_example_more_is_the_same_difference_in_every_seed_and_no_proof(count):
    shares = [float(torch.tensor(100 * wrong / count)) for wrong in (1, 4, 2, 5)]
    a, b, c, d = (exact_share(share, count) for share in shares)
    assert compare(pd.Series([c, d]), pd.Series([a, b]), paired=True).p == 0.5
