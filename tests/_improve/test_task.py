import random
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from relucid._improve._digests import digest_of_data
from relucid._improve._task import RECIPE, Called, task
from relucid.train import Machine, Recipe


def network(outputs=3):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, outputs))


def classes(count=100):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


class Lazy(Dataset):
    """Examples that count how often they are read, with an augmentation that each library draws a part of."""

    def __init__(self, count=60):
        self.count, self.read = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        drawn = torch.rand(()).item(), random.random(), np.random.rand()
        self.read.append((index, drawn))
        inputs = torch.full((4,), float(index)) + sum(drawn)
        return inputs, index % 3


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(*classes(), strict=True)


class Tokens(nn.Module):
    """A classifier of tokens with a mask, as transformers call theirs."""

    @dataclass
    class Output:
        logits: torch.Tensor
        hidden: torch.Tensor

    def __init__(self):
        super().__init__()
        self.embedding, self.last = nn.Embedding(50, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.embedding(input_ids)
        mask = torch.ones(input_ids.shape) if attention_mask is None else attention_mask
        pooled = (hidden * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.Output(self.last(pooled.relu()), hidden)


def tokens(count=60):
    ids = torch.randint(50, (count, 7), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones(count, 7), "labels": (ids[:, 0] > 25).long()}


class Two(nn.Module):
    """A network with two inputs."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(2, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x, y):
        return self.last((self.a(x) + self.b(y)).relu())


def once(whole, seed=0, epochs=1):
    """What a network has after an epoch of the task's training, and its history."""
    return whole.trained(whole.network, seed, Machine())


def test_examples_are_read_when_they_are_needed_and_augmented_anew_in_every_epoch():
    data = Lazy()
    whole = task(
        network(), (data, Lazy(20)), recipe=RECIPE.__class__(epochs=2, batch_size=64, normalize=False)
    )
    data.read.clear()
    whole.trained(whole.network, 0, Machine(workers=0))  # workers would read in processes of their own
    drawn = {}
    for index, values in data.read:
        drawn.setdefault(index, set()).add(values)
    del drawn[0], drawn[1]  # the first two are also looked at
    assert {len(epochs) for epochs in drawn.values()} == {2}
    assert all(len({values[part] for values in drawn[9]}) == 2 for part in range(3))


def test_what_is_drawn_follows_from_the_seed_and_leaves_the_process_alone():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    state = []
    for _ in range(2):
        found, _ = once(
            task(network(), (Lazy(), Lazy(20)), recipe=RECIPE.__class__(epochs=1, normalize=False))
        )
        state.append(found[0].weight.clone())
    assert torch.equal(*state)
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


def test_tokens_stay_integers_with_their_mask_and_the_logits_are_compared():
    whole = task(Tokens(), (tokens(), tokens(20)))
    assert whole.example["input_ids"].dtype == torch.int64
    assert set(whole.example) == {"input_ids", "attention_mask"}
    assert whole.loss == "cross_entropy"
    once(whole)
    assert 0 <= whole.measured(whole.network, 0)["error %"] <= 100


def test_integers_become_floats_where_the_network_takes_no_others():
    inputs, targets = classes()
    whole = task(network(), ((10 * inputs).long(), targets))
    assert whole.floats
    assert whole.example.dtype == torch.float32
    once(whole)


def test_several_inputs_are_passed_one_by_one():
    inputs, targets = classes()
    data = TensorDataset(inputs, inputs[:, :2], targets)
    whole = task(Two(), (data, data))
    assert [tuple(each.shape) for each in whole.example] == [(8, 4), (8, 2)]
    once(whole)
    assert set(whole.measured(whole.network, 0)) == {"error %"}


def test_segmentation_has_a_class_per_pixel():
    images = torch.randn(30, 1, 6, 6)
    whole = task(nn.Conv2d(1, 2, 3, padding=1), (images, (images[:, 0] > 0).long()))
    assert (whole.loss, whole.metric.label) == ("cross_entropy", "error %")
    once(whole)
    assert 0 <= whole.measured(whole.network, 0)["error %"] <= 100


def test_a_loader_is_read_by_its_own_collation():
    inputs, targets = classes()

    def collate(rows):
        x, y = map(torch.stack, zip(*rows, strict=True))
        return {"input": x, "label": y}

    loader = DataLoader(TensorDataset(inputs, targets), collate_fn=collate)
    assert set(task(network(), (loader, loader)).example) == {"input"}


def test_the_loss_and_the_metric_are_named():
    assert task(network(), classes()).training.startswith("Training: 30 epochs of adam, loss cross_entropy")
    inputs, _ = classes()
    assert task(network(1), (inputs, inputs.sum(1))).metric.label == "RMSE"


@pytest.mark.parametrize("columns", [1, 3])
def test_zeros_and_ones_are_asked_about(columns):
    inputs, _ = classes()
    targets = (inputs[:, :columns] > 0).float()
    with pytest.raises(ValueError, match="binary cross-entropy"):
        task(network(columns), (inputs, targets))
    assert task(network(columns), (inputs, targets), loss="bce").metric.label == "error %"
    assert task(network(columns), (inputs, targets), loss="mse").metric.label == "RMSE"


def own_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def test_a_loss_of_ones_own_decides_unless_there_is_a_metric():
    assert task(network(), classes(), loss=own_loss).metric.label == "loss"
    assert task(network(), classes(), loss=own_loss, metric="error").metric.label == "error %"
    whole = task(network(), (classes(), classes(30)), loss=own_loss)
    inputs, targets = classes(30)
    expected = own_loss(whole.network(inputs), targets).item()
    assert whole.measured(whole.network, 0)["loss"] == pytest.approx(expected, rel=1e-5)


def test_own_functions_get_the_data_as_they_are():
    seen = []

    def train(net, data, seed):
        seen.append((data, seed, net.training))

    def metric(net, data):
        seen.append((data, net.training))
        return {"recall": 0.5, "precision": torch.tensor(0.25)}

    class Anything:
        pass

    first, second = Anything(), Anything()
    example = torch.randn(64, 4)
    whole = task(network(), (first, second), train=train, metric=metric, example=example)
    assert whole.trained(whole.network, 3, Machine())[0] is whole.network
    assert whole.measured(whole.network, 3) == {"recall": 0.5, "precision": 0.25}
    assert seen == [(first, 3, True), (second, False)]
    assert next(whole.watched()).shape == (64, 4)
    assert len(whole.example) == 8
    both = task(network(), first, train=train, metric=metric, example=example)
    assert both.given(0) == (first, first)


def own_training(net, data, seed):
    net(data[0]).logsumexp(1).sum().backward()


@pytest.mark.parametrize("train", [replace(RECIPE, epochs=1), own_training], ids=["recipe", "own function"])
def test_norms_and_dropout_are_trained_in_training_mode(train):
    modes, (first, relu, last) = [], network()
    net = nn.Sequential(first, nn.BatchNorm1d(6), relu, nn.Dropout(), last).eval()
    given = {"recipe": train} if isinstance(train, Recipe) else {"train": train}
    whole = task(net, (classes(), classes()), **given)
    copied = deepcopy(whole.network)
    copied[3].register_forward_hook(lambda module, *_: modes.append(module.training))
    whole.trained(copied, 0, Machine())
    assert modes[0]
    assert int(copied[1].num_batches_tracked) > 0
    assert not net.training, "the user's own is left as it is"


def test_modules_frozen_on_purpose_stay_frozen():
    first, relu, last = network()
    net = nn.Sequential(first, nn.BatchNorm1d(6), relu, nn.Dropout(), last)
    net[1].eval()
    whole = task(net, (classes(), classes()), recipe=replace(RECIPE, epochs=1))
    trained, _ = whole.trained(deepcopy(whole.network), 0, Machine())
    assert int(trained[1].num_batches_tracked) == 0


def test_what_a_network_computes_belongs_to_the_identity_of_its_runs():
    class Scaled(nn.Sequential):
        factor = 1.0

        def forward(self, x):
            return super().forward(x * self.factor)

    def identity(factor):
        net = Scaled(*network())
        net.factor = factor
        return task(net, (classes(), classes())).configuration()

    assert identity(1.0) == identity(1.0) != identity(2.0)


def test_random_weights_are_noticed():
    assert "random weights" in task(lambda: nn.Linear(4, 3), (classes(), classes())).cautions[0]
    assert task(network, (classes(), classes())).cautions == []


def test_every_seed_tests_with_other_examples_unless_the_data_have_their_own():
    inputs, targets = classes()
    whole = task(network, (inputs, targets))
    train, test = whole.split(1)
    assert (len(train), len(test)) == (80, 20)
    assert not torch.equal(test.indices, whole.split(2)[1].indices)
    assert torch.cat([train.indices, test.indices]).sort().values.tolist() == list(range(100))
    assert torch.equal(train.batch(torch.arange(80))[0], inputs[train.indices])
    assert "too good" in whole.cautions[0]
    given = task(network, ((inputs, targets), (inputs[:9], targets[:9])))
    assert torch.equal(given.split(1)[1].inputs, inputs[:9])


def test_different_data_have_different_digests():
    inputs, targets = classes()
    other = inputs.clone()
    other[50, 0] += 1e-6
    known = [
        (inputs, targets),
        (other, targets),
        (inputs[:99], targets[:99]),
        Lazy(),
        Lazy(59),
        {"a": inputs},
    ]
    assert len({digest_of_data(each) for each in known}) == len(known)
    assert digest_of_data((inputs.numpy(), targets.numpy())) == digest_of_data(
        (inputs.clone(), targets.clone())
    )
    assert digest_of_data(Lazy()) == digest_of_data(Lazy())


def test_a_network_may_return_a_mapping_or_a_named_tuple():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return {"out": self.layer(x), "aux": x}

    whole = task(Named(), (classes(), classes(20)))
    once(whole)
    assert Called(whole.network)(classes()[0]).shape == (100, 3)


def broken():
    net = network()
    net[2].weight.data[0, 0] = float("nan")
    return net


def trained_by(train=print, metric=lambda net, data: 1.0):
    return task(network(), classes(), train=train, metric=metric)


def measured_as(value):
    whole = trained_by(metric=lambda net, data: value)
    return whole.measured(whole.network, 0)


REFUSALS = [
    *((lambda data=data: task(network(), data), TypeError, "cannot be shuffled and split")
      for data in (Stream(), DataLoader(Stream()), iter([]))),
    (lambda: task(network(2), classes()), ValueError, "label 2 is out of range"),
    (lambda: task(network, (torch.randn(30, 5), torch.arange(30) % 3)), ValueError, r"inputs of shape \(5,\)"),
    (lambda: task(nn.ReLU, classes()), ValueError, "no parameters"),
    (lambda: task(lambda: 3, classes()), TypeError, "not a torch.nn.Module"),
    (lambda: task(nn.LSTM(4, 3), classes()), TypeError, "returns a tuple"),
    (lambda: task(network, (torch.randn(30, 4), torch.randn(30))), ValueError, "3 outputs .* 1 targets"),
    (lambda: task(broken, classes()), ValueError, r"2.weight .* not finite"),
    (lambda: task(network(), classes(), recipe=replace(RECIPE, augment=("flip",))), ValueError, "is for images"),
    (lambda: task(network(), object(), train=print, metric=print), ValueError, "give an example"),
    (lambda: once(trained_by(lambda net, data, seed: network(2))), TypeError, "does not return the network"),
    *((lambda value=value: measured_as(value), TypeError, "not a number or a dict of numbers")
      for value in ("high", None, [1, 2])),
]  # fmt: skip


@pytest.mark.parametrize("call, error, words", REFUSALS, ids=map(str, range(len(REFUSALS))))
def test_what_does_not_fit_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
