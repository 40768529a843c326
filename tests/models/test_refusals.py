"""What makes no sense is refused in one sentence that names the value, and where it helps what would be right."""

import pytest

from relucid.models import Design, LayerOptions, create
from relucid.nn import HeavyBall

VECTOR = {"in_channels": 3}
NETWORKS = [  # a name, choices, words of the message
    ("resnet65", {}, ["'resnet65'", "'resnet56'"]),
    ("crelu/convpol-half", {}, ["'crelu/convpool-half'"]),
    ("vgg6", {"dept": 3}, ["'dept'", "propagation, layers"]),
    ("resnet56", {"depth": 20}, ["'depth'", "reversible"]),
    ("resnet20", {"reversable": True}, ["'reversable'", "'reversible'"]),
    ("vgg6", {"propagation": "heavy_ball"}, ["'heavy_ball'", "'plain'"]),
    ("vgg16", {"propagation": HeavyBall()}, ["HeavyBall", "'plain'"]),
    ("resnet20", {"propagation": "dense"}, ["'dense'", "growth"]),
    ("densenet121", {"propagation": "admm"}, ["'admm'", "'nesterov2'"]),
    ("resnet50", {"weights": "weightnorm"}, ["weightnorm", "norm='mean'"]),
    ("resnet50", {"strided": "5x5"}, ["'5x5'", "'1x1'"]),
    ("resnet34", {"strided": "1x1"}, ["'1x1'", "resnet50"]),
    ("resnet_cifar", {"depth": 19}, ["19", "6n + 2"]),
    ("densenet_cifar", {"depth": 41}, ["41", "3n + 4"]),
    ("resnet20", {"rectify": "never"}, ["'never'", "'nowhere'"]),
    ("resnet20", {"reversible": True}, ["reversible=True", "heavy ball"]),
    ("mlp", {}, ["in_channels"]),
    ("mlp", {**VECTOR, "hidden": ()}, ["hidden=(100,)"]),
    ("mlp", {**VECTOR, "propagation": "residual"}, ["hidden=(100,)", "'plain'"]),
    ("mlp", {**VECTOR, "hidden": (8, 9), "propagation": "admm"}, ["hidden=(8, 9)"]),
    ("mlp", {**VECTOR, "norm": "input_mean"}, ["norm='input_mean'", "norm='none'"]),
    ("feedforward", VECTOR, ["3 and 10"]),
    ("feedforward", {"depth": 0}, ["at least 1", "0"]),
    ("vgg6", {"width": 0.0}, ["width", "0.0"]),
    ("vgg6", {"in_channels": 0}, ["in_channels", "0"]),
    ("vgg6", {"num_classes": 0}, ["num_classes", "0"]),
    ("vgg6", {"init": "he"}, ["'he'", "'glorot_uniform'"]),
    ("vgg6", {"layers": {"conv7": LayerOptions()}}, ["'conv7'", "'conv6'"]),
    # a field of the design
    ("vgg6", {"activation": "creul"}, ["'creul'", "'crelu'"]),
    ("vgg6", {"weights": 3}, ["3", "weightnorm"]),
    ("vgg6", {"norm": "layer"}, ["'layer'", "input_mean"]),
    ("mlp", {"propagation": "heavyball"}, ["'heavy_ball'"]),
]


def refused(call, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the words are compared one by one
        call()
    message = str(error.value)
    assert [word for word in words if word not in message] == []
    assert "\n" not in message


@pytest.mark.parametrize("name, choices, words", NETWORKS)
def test_what_cannot_be_built_is_refused(name, choices, words):
    refused(lambda: create(name, **{"num_classes": 10, **choices}), words)


@pytest.mark.parametrize(
    "written, words",
    [
        ({"depth": 3}, ["'depth'", "propagation"]),
        ({"propagation": {"rule": "HevyBall"}}, ["'HevyBall'", "'HeavyBall'"]),
    ],
)
def test_what_is_no_design_is_refused(written, words):
    refused(lambda: Design.from_dict(written), words)
