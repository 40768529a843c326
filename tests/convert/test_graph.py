import re
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.convert import ConversionError, capture, to_crelu
from relucid.convert.graph import is_relu_call

from .networks import NETWORKS, Functional, SharedReLU, example, trained_a_little


@pytest.mark.parametrize("network", NETWORKS)
def test_a_graph_computes_what_the_network_does_for_any_batch(network):
    model = trained_a_little(NETWORKS[network]())
    net, x = capture(model, example()), torch.randn(9, 3, 8, 8, dtype=torch.float64)
    assert torch.equal(net(x), model(x))
    assert set(net.state_dict()) == set(model.state_dict())


def test_every_relu_becomes_a_module_of_its_own():
    for model, count in (Functional(), 2), (SharedReLU(), 3):
        net = capture(model, example(torch.float32))
        relus = [node for node in net.graph.nodes if is_relu_call(net, node)]
        assert len(relus) == len({node.target for node in relus}) == count
        assert not any(net.get_submodule(node.target).inplace for node in relus)


def test_a_functional_dropout_still_depends_on_the_mode():
    model = Functional()
    net, x = capture(model.train(), example(torch.float32)), example(torch.float32)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert torch.equal(net(x), model.eval()(x))


def test_modes_of_modules_are_kept():
    model = SharedReLU().train()
    model.bn1.eval()
    net = capture(model, example(torch.float32))
    assert net.training
    assert net.bn2.training
    assert not net.bn1.training


def test_arguments_come_as_the_example_has_them():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x, scale=2.0, mask=None):
            if mask is not None:
                x = x * mask
            return F.relu(self.fc(x)) * scale

    x, mask, model = torch.randn(4, 3), torch.rand(4, 3), Two()
    assert torch.equal(capture(model, x)(x), model(x))
    assert torch.equal(capture(model, (x, 3.0))(x, 3.0), model(x, 3.0))
    assert torch.equal(capture(model, {"mask": mask, "x": x})(x=x, mask=mask), model(x, mask=mask))


@dataclass
class Answer(OrderedDict):
    """As in transformers: a dataclass and a dictionary at once."""

    logits: torch.Tensor
    states: torch.Tensor | None = None

    def __post_init__(self):
        self["logits"] = self.logits


@dataclass
class Plain:
    logits: torch.Tensor


@pytest.mark.parametrize(
    "kind", [Answer, Plain, lambda logits: {"logits": logits}, lambda logits: (logits, None)]
)
def test_outputs_keep_their_form(kind):
    class Answers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return kind(logits=self.fc2(self.fc1(x).relu()))

    model, x = Answers(), torch.randn(2, 3)
    conversion = to_crelu(model, x)
    expected, found = model(x), conversion.model(x)
    assert type(found) is type(expected)
    assert torch.equal(_logits(found), _logits(expected))


def _logits(answer):
    if isinstance(answer, tuple):
        return answer[0]
    return answer.logits if hasattr(answer, "logits") else answer["logits"]


class DependsOnShape(nn.Module):
    def forward(self, x):
        if x.shape[1] != 3 or len(x.shape) != 4 or x.dim() != x.ndim:
            raise ValueError("wrong")
        n, *_ = x.shape
        return x.reshape(n, -1).relu()


def test_conditions_on_shapes_are_followed():
    x = torch.randn(5, 3, 2, 2)
    assert torch.equal(capture(DependsOnShape(), x[:2])(x), DependsOnShape()(x))


class DependsOnData(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class LoopsOverData(nn.Module):
    def forward(self, x):
        return sum(row for row in x)


class DependsOnLength(nn.Module):
    def forward(self, x):
        return x * len(x)


class TakesAnything(nn.Module):
    def forward(self, *args):
        return args[0]


@pytest.mark.parametrize(
    "model, sentence",
    [
        (DependsOnData(), "test_graph.py:.*if x.sum.. > 0:.*a condition depends on the data"),
        (LoopsOverData(), "test_graph.py:.*sum.row for row in x.*a loop depends on the data"),
    ],
)
def test_what_is_not_one_graph_is_refused_and_the_line_is_named(model, sentence):
    with pytest.raises(ConversionError) as error:
        to_crelu(model, torch.randn(2, 3))
    assert re.search(sentence, str(error.value))


@pytest.mark.parametrize("model", [DependsOnLength(), TakesAnything()])
def test_lengths_and_any_number_of_arguments_are_followed(model):
    x = torch.randn(5, 3)
    assert torch.equal(capture(model, x[:2])(x), model(x))


def test_a_network_that_cannot_be_copied_is_refused():
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo):
            raise RuntimeError("no")

    with pytest.raises(ConversionError, match="Uncopied cannot be copied: no"):
        capture(Uncopied(2, 2), torch.zeros(1, 2))
