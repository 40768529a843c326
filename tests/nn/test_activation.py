import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import grad, hessian, jvp, vmap

from relucid.nn import AVR, CReLU, GeometricLinear, crelu, crelu_inverse


def reference(x, dim=1, paired=None):
    doubled = x if paired is None else x.narrow(dim, 0, paired)
    return torch.cat((F.relu(x), F.relu(-doubled)), dim)


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    paired = draw(st.none() | st.integers(0, shape[dim]))
    torch.manual_seed(draw(st.integers(0, 999)))
    x = torch.randn(shape)
    x[torch.rand_like(x) < 0.2] = 0.0
    return x, dim, paired


@given(tensors())
def test_crelu_is_two_relus_one_after_the_other(case):
    x, dim, paired = case
    assert torch.equal(crelu(x, dim, paired=paired), reference(x, dim, paired))


@given(tensors())
def test_inverse_gives_the_input_back_exactly(case):
    x, dim, _ = case
    assert torch.equal(crelu_inverse(crelu(x, dim), dim), x)


def test_infinities_pass_and_nan_stays_nan():
    x = torch.tensor([[torch.inf, -torch.inf, torch.nan]])
    assert torch.equal(crelu(x).nan_to_num(7.0), reference(x).nan_to_num(7.0))


@pytest.mark.parametrize("paired", [None, 0, 2])
def test_first_and_second_derivatives(paired):
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def function(x):
        return crelu(x, 1, paired=paired)

    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: function(x).pow(3), x)


def test_gradient_at_zero_is_zero():
    x = torch.zeros(1, 2, requires_grad=True)
    crelu(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(1, 2))


def test_vmap_grad_jvp_and_hessian_agree_with_the_reference():
    x, v = torch.randn(2, 5, 3)

    def ours(x):
        return crelu(x, 0).pow(3).sum()

    def theirs(x):
        return reference(x, 0).pow(3).sum()

    assert torch.equal(vmap(crelu, in_dims=1)(x[None]), torch.stack([reference(c[None]) for c in x]))
    assert torch.allclose(vmap(grad(ours))(x), vmap(grad(theirs))(x))
    assert torch.allclose(vmap(hessian(ours))(x), vmap(hessian(theirs))(x))
    assert torch.allclose(torch.stack(jvp(ours, (x,), (v,))), torch.stack(jvp(theirs, (x,), (v,))))


def test_compiles_without_a_graph_break():
    x = torch.randn(2, 3, requires_grad=True)
    compiled = torch.compile(CReLU(), fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(reference(x).sin().sum(), x)
    (found,) = torch.autograd.grad(compiled(x).sin().sum(), x)
    assert torch.allclose(found, expected)


@pytest.mark.parametrize("layer", [CReLU(), CReLU(paired=2), CReLU(activation=nn.Tanh())], ids=str)
def test_is_exported(layer):
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x))


@pytest.mark.parametrize("dynamo", [True, False])
def test_exports_to_onnx(dynamo, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    x, path = torch.randn(2, 3), str(tmp_path / "crelu.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(CReLU(), (x,), path, dynamo=dynamo, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (name,) = [each.name for each in session.get_inputs()]
    found = session.run(None, {name: x.numpy(force=True)})[0]
    assert torch.equal(torch.from_numpy(found), reference(x).cpu())


@pytest.mark.parametrize(
    "shape, layout", [((2, 3, 4, 4), "channels_last"), ((2, 3, 4, 4, 4), "channels_last_3d")]
)
def test_channels_last_stays_channels_last(shape, layout):
    memory_format = getattr(torch, layout)
    x = torch.randn(shape).to(memory_format=memory_format)
    y = crelu(x)
    assert y.is_contiguous(memory_format=memory_format)
    assert torch.equal(y, reference(x))


def test_only_the_output_is_kept_for_backward():
    kept = []
    x = torch.randn(2, 3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = crelu(x)
    assert [t.untyped_storage().data_ptr() for t in kept] == [y.untyped_storage().data_ptr()]


class Softened(nn.ReLU):
    def forward(self, x):
        return F.leaky_relu(x, 0.5)


@pytest.mark.parametrize(
    "layer", [CReLU(activation=Softened()), GeometricLinear(4, 4, activation=Softened())]
)
def test_a_subclass_of_relu_computes_what_it_says(layer):
    assert layer(torch.randn(20, 4)).min() < 0


@pytest.mark.parametrize("activation", [torch.tanh, nn.GELU(), nn.LeakyReLU(0.1), nn.ReLU6(inplace=True)])
def test_any_elementwise_activation_sees_both_signs(activation):
    x = torch.randn(2, 3)
    before = x.clone()
    found = CReLU(activation=activation)(x)
    assert torch.equal(x, before)
    assert torch.equal(found, torch.cat((activation(x.clone()), activation(-x)), 1))


def test_avr_is_the_absolute_value_with_gradient_zero_at_zero():
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    y = AVR()(x)
    y.sum().backward()
    assert y.tolist() == [1.0, 0.0, 2.0]
    assert x.grad.tolist() == [-1.0, 0.0, 1.0]


def test_repr_shows_what_was_chosen():
    assert repr(CReLU()) == "CReLU(dim=1)"
    assert repr(CReLU(-1, torch.tanh, paired=2)) == "CReLU(dim=-1, activation=tanh, paired=2)"
