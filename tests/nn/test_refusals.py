"""What makes no sense is refused in one sentence that names the value, and where it helps what would be right."""

import math

import pytest
import torch
from torch import nn

from relucid.nn import (
    CReLU,
    GeometricConv2d,
    GeometricLinear,
    HeavyBall,
    MeanNorm,
    Nesterov,
    Nesterov2,
    Pairwise,
    PairwiseConv2d,
    Propagation,
    RelaxedADMM,
    RelaxedNesterov2,
    angles_of,
    crelu,
    crelu_inverse,
    direction,
    geometric,
    metric,
    parameter_groups,
    unit_vector,
)
from relucid.nn.affine import affine_of


def filled(layer, name, value):
    nn.init.constant_(getattr(layer, name)[:1].detach(), value)
    return layer


def linear():
    return nn.Linear(4, 4)


def stage(rule="heavy_ball", **options):
    return Propagation([linear(), linear(), linear()], rule, **options)


REFUSALS = [  # a call, its error, words of the message
    (lambda: crelu(torch.ones(2, 2, dtype=torch.int64)), TypeError, ["torch.int64"]),
    (lambda: crelu(torch.ones(2, 2, dtype=torch.complex64)), TypeError, ["torch.complex64"]),
    (lambda: crelu(torch.ones(2)), IndexError, ["dim 1", "(2,)"]),
    (lambda: crelu(torch.ones(2, 2), paired=3), ValueError, ["paired=3", "2 channels"]),
    (lambda: crelu([[1.0]]), TypeError, ["list"]),
    (lambda: crelu_inverse([[1.0, 0.0]]), TypeError, ["list"]),
    (lambda: crelu_inverse(torch.ones(2, 3)), ValueError, ["dim 1 has 3"]),
    (lambda: CReLU()([[1.0]]), TypeError, ["list"]),
    (lambda: CReLU(activation="relu"), TypeError, ["'relu'", "nn.ReLU()"]),
    (lambda: unit_vector(torch.tensor(1.0)), ValueError, ["angles"]),
    (lambda: direction(torch.ones(3, dtype=torch.int64)), TypeError, ["latitudes", "torch.int64"]),
    (lambda: metric(torch.ones(3, dtype=torch.complex64)), TypeError, ["angles", "torch.complex64"]),
    (lambda: direction(torch.ones(3, 2), torch.ones(2)), ValueError, ["(3,)", "(2,)"]),
    (lambda: angles_of(torch.empty(3, 0)), ValueError, ["size 0"]),
    (lambda: GeometricLinear(0, 3), ValueError, ["in_features", "0"]),
    (lambda: GeometricConv2d(0, 3, 3), ValueError, ["in_channels", "0"]),
    (lambda: GeometricConv2d(3, 4, 3, groups=2), ValueError, ["groups"]),
    (lambda: GeometricLinear(3, 3, init="ones"), ValueError, ["'ones'", "'glorot_uniform'"]),
    (lambda: GeometricLinear(3, 3, dtype=torch.complex64), TypeError, ["torch.complex64"]),
    (lambda: GeometricLinear(2, 2, activation="relu"), TypeError, ["'relu'", "nn.ReLU()"]),
    (lambda: GeometricLinear.from_standard(nn.Conv2d(1, 1, 1)), TypeError, ["nn.Linear", "Conv2d"]),
    (
        lambda: GeometricLinear.from_standard(filled(linear(), "weight", math.nan)),
        ValueError,
        ["weight", "NaN"],
    ),
    (lambda: GeometricLinear.from_standard(linear(), torch.tanh), ValueError, ["tanh", "AVR"]),
    (lambda: GeometricLinear.from_standard(linear(), nn.ReLU6()), ValueError, ["ReLU6()", "AVR"]),
    (
        lambda: filled(GeometricLinear(2, 3, activation=nn.ReLU()), "scale", -1).to_standard(),
        ValueError,
        ["1 of 3", "relucid.convert.fuse"],
    ),
    (lambda: geometric(nn.ReLU()), ValueError, ["ReLU", "'weight'"]),
    (lambda: geometric(filled(linear(), "weight", math.nan)), ValueError, ["'weight'", "NaN"]),
    (lambda: MeanNorm(0), ValueError, ["num_features", "0"]),
    (lambda: MeanNorm(3)(torch.ones(2, 4)), ValueError, ["(N, 3)", "(2, 4)"]),
    (lambda: MeanNorm(3, dim=2), ValueError, ["dim", "-1"]),
    (lambda: MeanNorm(3, dim=-1)(torch.ones(3, 2)), ValueError, ["(N, ..., 3)", "(3, 2)"]),
    (lambda: MeanNorm(3)(torch.ones(3)), ValueError, ["(N, 3)", "(3,)"]),
    (lambda: MeanNorm(3)(torch.ones(0, 3)), ValueError, ["empty", "(0, 3)"]),
    (lambda: affine_of(nn.BatchNorm1d(2, track_running_stats=False)), TypeError, ["running mean"]),
    (lambda: PairwiseConv2d(nn.Conv2d(5, 4, 3), [2, 2]), ValueError, ["[2, 2]", "5"]),
    (lambda: PairwiseConv2d(nn.Conv2d(5, 4, 3), [3, 4]), ValueError, ["[3, 4]", "5"]),
    (lambda: PairwiseConv2d(nn.Conv2d(4, 4, 3, groups=2), [2, 2]), ValueError, ["groups=2"]),
    (lambda: PairwiseConv2d(nn.Conv2d(4, 4, 3, padding_mode="reflect"), [2, 2]), ValueError, ["reflect"]),
    (lambda: PairwiseConv2d(GeometricConv2d(4, 4, 3, activation=nn.ReLU()), [2, 2]), ValueError, ["ReLU"]),
    (
        lambda: Pairwise([nn.Conv2d(4, 2, 1), nn.Conv2d(6, 3, 1)], 0.1)(torch.ones(1, 4, 4, 4)),
        ValueError,
        ["(1, 2, 4, 4)", "(1, 3, 4, 4)"],
    ),
    *[
        (lambda decay=decay: parameter_groups(linear(), decay), ValueError, ["weight_decay", repr(decay)])
        for decay in (-1, math.nan, math.inf, "1e-4")
    ],
    (lambda: stage("adam"), ValueError, ["'adam'", "heavy_ball"]),
    (lambda: stage(HeavyBall([1.0, 2.0])), ValueError, ["beta1", "2 values", "1 or 3"]),
    (lambda: stage(HeavyBall(beta2=[1.0] * 4, learnable=True)), ValueError, ["beta2", "4 values"]),
    (lambda: stage(Nesterov2([0.1] * 4)), ValueError, ["beta", "4 values"]),
    (lambda: stage(RelaxedNesterov2(alpha=[[1.0], [1.0]])), ValueError, ["[1, 1]"]),
    (lambda: stage("admm"), ValueError, ["(T', T)", "Linear"]),
    (lambda: Propagation([(linear(), linear())]), ValueError, ["tuple"]),
    (lambda: Propagation([]), ValueError, ["`first`"]),
    (lambda: Propagation([], "plain", start="zero"), ValueError, ["`first`"]),
    (lambda: stage(after="relu"), TypeError, ["'relu'", "nn.ReLU()"]),
    (lambda: stage(after=nn.ModuleList([nn.ReLU()])), ValueError, ["1 modules", "3 layers"]),
    (lambda: stage(after=torch.relu, reversible=True), ValueError, ["`after`"]),
    (lambda: stage(start="one"), ValueError, ["'one'", "'zero'"]),
    (lambda: stage(store_every=2), ValueError, ["store_every", "reversible=True"]),
    (lambda: stage(store_every=0, reversible=True), ValueError, ["store_every", "1 or more"]),
    (lambda: stage("residual", reversible=True), ValueError, ["beta2 other than 0"]),
    (lambda: stage(HeavyBall(beta2=0.0), reversible=True), ValueError, ["beta2 other than 0"]),
    (lambda: stage(HeavyBall([1.0, 0.0, 1.0]), reversible=True), ValueError, ["beta2 other than 0"]),
    (lambda: stage(state_dtype=torch.float32, reversible=True), ValueError, ["torch.float32"]),
    (lambda: RelaxedADMM(alpha=[[1], [0.5, math.nan]]), ValueError, ["alpha", "nan"]),
    *[
        (lambda rule=rule, value=value: rule(beta=value), ValueError, ["beta must be a finite number"])
        for rule in (HeavyBall, Nesterov, Nesterov2)
        for value in ("a", math.nan, math.inf, [0.5, math.nan], torch.tensor(math.nan))
    ],
]


@pytest.mark.parametrize("call, error, words", REFUSALS)
def test_bad_input_is_refused_in_one_sentence(call, error, words):
    with pytest.raises(error) as refusal:
        call()
    message = str(refusal.value)
    assert [word for word in words if word not in message] == []
    assert "\n" not in message
