"""Bad input is one sentence, and the original stays as it was."""

import copy
import inspect
import random
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from relucid.convert import ConversionError, fuse, to_crelu, to_geometric, to_heavy_ball
from relucid.nn import CReLU, GeometricLinear

DOCS = Path(__file__).parents[2] / "docs"
CONVERSIONS = [to_crelu, to_geometric, to_heavy_ball, fuse]
every_conversion = pytest.mark.parametrize("conversion", CONVERSIONS)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


@every_conversion
def test_a_misspelt_argument_is_an_error_of_the_call_and_not_of_the_network(conversion):
    with pytest.raises(TypeError, match="'layer'"):
        conversion(network(), torch.randn(2, 4), layer=["0"])
    with pytest.raises(TypeError, match="'example'"):
        conversion(network())


def test_the_page_names_the_conversions_that_take_layers():
    page = (DOCS / "conversions.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^`layers=.*?(?=\n\n)", page, re.MULTILINE | re.DOTALL)
    taking = {f.__name__ for f in CONVERSIONS if "layers" in inspect.signature(f).parameters}
    assert set(re.findall(r"`(to_\w+|fuse)`", text.split(";")[0])) == taking


@pytest.mark.parametrize("convert", [to_geometric, partial(to_crelu, mode="merge")])
def test_layers_that_examine_suggests_are_refused_where_it_suggests_none(convert):
    with pytest.raises(
        ValueError, match=r"'auto' is for to_crelu with mode='expand', .*; give names or globs"
    ):
        convert(network(), torch.randn(2, 4), layers="auto")


class Lost(nn.Module):
    def forward(self, x):
        return x * torch.nan


class Uncopied(nn.Sequential):
    def __deepcopy__(self, memo):
        raise RuntimeError("no")


x = torch.randn(2, 4)
BAD = {
    "no network": (lambda: 3, x, "a network is an nn.Module, not a int"),
    "compiled": (
        lambda: torch.compile(network(), backend="eager"),
        x,
        "the network is compiled; convert the original",
    ),
    "one layer": (lambda: nn.Linear(4, 4), x, "Linear is a single layer, .*; put it into nn.Sequential"),
    "geometric layer": (lambda: GeometricLinear(4, 4), x, "GeometricLinear is a single layer"),
    "recurrent layer": (lambda: nn.LSTM(4, 4), x, "LSTM is a single layer"),
    "meta": (lambda: network().to("meta"), x, "Sequential has weights without values, on the meta device"),
    "inference": (torch.inference_mode()(network), x, "was made in torch.inference_mode"),
    "not copied": (lambda: Uncopied(*network()), x, "Uncopied cannot be copied: RuntimeError: no"),
    "NaN": (network, x * torch.nan, "the example holds NaN or infinity; give"),
    "infinity": (network, {"input": x.abs() / 0}, "the example holds NaN or infinity; give"),
    "no elements": (network, torch.randn(0, 4), "the example has no elements; give"),
    "no examples": (network, [], "the list of examples is empty; give"),
    "wrong size": (network, torch.randn(2, 5), r"Sequential does not take the example: .*mat1 and mat2"),
    "no output": (
        lambda: nn.Sequential(*network(), Lost()),
        x,
        "has no finite output in evaluation on an input",
    ),
}


@every_conversion
@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_changed(conversion, bad):
    make, example, sentence = BAD[bad]
    model = make()
    is_network = isinstance(model, nn.Module)
    before = (repr(model), [m.training for m in model.modules()]) if is_network else None
    state = {k: v.clone() for k, v in model.state_dict().items()} if is_network else {}
    drawn = torch.get_rng_state(), random.getstate()
    with pytest.raises(ConversionError, match=sentence) as error:
        conversion(model, example)
    assert "\n" not in str(error.value)
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]
    if is_network:
        assert (repr(model), [m.training for m in model.modules()]) == before
        if bad != "meta":
            assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_under_autocast_a_network_is_converted_as_without_it():
    model, example = network(), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found = to_geometric(to_crelu(model, example).model, example)
    assert found.relative_error < 1e-6
    assert [type(each) for each in found.model] == [GeometricLinear, CReLU, nn.Linear]
    assert torch.allclose(found.model(example), model(example), atol=1e-6)


@every_conversion
def test_lazy_layers_are_refused_and_stay_lazy(conversion):
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(4))
    with pytest.raises(ConversionError, match=r"Sequential has lazy layers, .*; run it on an input first"):
        conversion(model, x)
    assert all(map(nn.parameter.is_lazy, model.parameters()))


@pytest.mark.parametrize("convert", [to_crelu, to_geometric, fuse])
def test_a_conversion_that_works_leaves_the_original_and_the_random_numbers_alone(convert):
    layers = (nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    model, seen = nn.Sequential(*layers).train(), []
    model[2].register_forward_hook(lambda *_: seen.append(1))
    model[1].eval()
    before, drawn = copy.deepcopy(model), torch.get_rng_state()
    net = convert(model, torch.randn(6, 4, generator=torch.Generator().manual_seed(0))).model
    assert torch.equal(torch.get_rng_state(), drawn)
    assert repr(model) == repr(before)
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert len(model[2]._forward_hooks) == 1
    state = before.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not {id(p) for p in net.parameters()} & {id(p) for p in model.parameters()}


def test_in_place_the_network_itself_changes():
    model, example = network(), torch.randn(5, 4)
    expected = model(example)
    conversion = to_crelu(model, example, inplace=True)
    assert conversion.model is model
    torch.testing.assert_close(model(example), expected)
    assert model[2].in_features == 16


def test_what_is_refused_in_place_leaves_the_network_as_it_was():
    model = nn.Sequential(*network(), Lost())
    before = repr(model)
    with pytest.raises(ConversionError):
        to_crelu(model, torch.randn(2, 4), inplace=True)
    assert repr(model) == before


def test_masks_may_be_of_negative_infinity():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x, mask):
            return (self.fc2(self.fc1(x).relu()) + mask).softmax(-1)

    found = to_crelu(Masked(), (torch.randn(2, 4), torch.tensor([[0.0, 0.0], [0.0, -torch.inf]])))
    assert found.model.fc2.in_features == 16


def test_fuse_promises_evaluation_only():
    class LostInTraining(nn.Module):
        def forward(self, x):
            return x * torch.nan if self.training else x

    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), LostInTraining())
    with pytest.raises(ConversionError, match="Sequential has no finite output in training on"):
        to_geometric(model, torch.randn(2, 4))
    assert fuse(model.eval(), torch.randn(2, 4)).relative_error < 1e-5
