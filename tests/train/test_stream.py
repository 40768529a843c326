from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from relucid.nn import CReLU, GeometricLinear
from relucid.train.stream import Stream

RATES = (0.001, 0.01, 0.1)


def networks():
    made = []
    for seed in range(3):
        torch.manual_seed(seed)
        layers = nn.Linear(4, 3), CReLU(), GeometricLinear(6, 5, activation=nn.ReLU()), nn.Linear(5, 2)
        made.append(nn.Sequential(*layers).double())
    return made


def optimizers(made, decay):
    return [
        Adam(net.parameters(), lr=rate, weight_decay=decay) for net, rate in zip(made, RATES, strict=True)
    ]


def batches(count):
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        x = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)
        yield x, torch.randint(2, (3, 6), generator=generator)


def learn_one_by_one(made, optimizers, count):
    for x, y in batches(count):
        for place, (net, optimizer) in enumerate(zip(made, optimizers, strict=True)):
            optimizer.zero_grad()
            cross_entropy(net(x[place]), y[place]).backward()
            optimizer.step()


def learn_together(made, optimizers, count):
    stream = Stream(made, optimizers)
    for x, y in batches(count):
        stream.learn(x, y, cross_entropy)
    stream.write()
    return stream


def same(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.state_dict(), other.state_dict(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_stream_is_a_loop_over_its_networks(decay):
    ours, theirs = networks(), networks()
    learn_together(ours, optimizers(ours, decay), 20)
    learn_one_by_one(theirs, optimizers(theirs, decay), 20)
    same(ours, theirs)


def test_optimizers_go_on_where_a_stream_left_them_and_a_stream_where_they_left_off():
    ours, theirs = networks(), networks()
    mine, other = optimizers(ours, 0.0), optimizers(theirs, 0.0)
    learn_one_by_one(ours, mine, 5)
    learn_together(ours, mine, 5)
    learn_one_by_one(ours, mine, 5)
    for _ in range(3):
        learn_one_by_one(theirs, other, 5)
    same(ours, theirs)


def test_frozen_parameters_stay():
    made = networks()
    made[0][0].requires_grad_(False), made[1][0].requires_grad_(False), made[2][0].requires_grad_(False)
    before = deepcopy(made[1].state_dict())
    trained = [
        Adam([p for p in net.parameters() if p.requires_grad], lr=rate)
        for net, rate in zip(made, RATES, strict=True)
    ]
    learn_together(made, trained, 3)
    assert torch.equal(made[1][0].weight, before["0.weight"])
    assert not torch.equal(made[1][3].weight, before["3.weight"])


def test_what_is_returned_is_from_before_the_step():
    made = networks()
    (x, y), *_ = batches(1)
    expected = torch.stack([net(inputs) for net, inputs in zip(made, x, strict=True)])
    found = Stream(made, optimizers(made, 0.0)).learn(x, y, cross_entropy)
    torch.testing.assert_close(found, expected)
