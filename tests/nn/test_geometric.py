import copy
import functools
import io
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.utils import parametrize, prune

from relucid.nn import (
    AVR,
    CReLU,
    GeometricConv1d,
    GeometricConv2d,
    GeometricConv3d,
    GeometricLinear,
    geometric,
    latitudes_of,
    unit_vector,
)
from relucid.nn.rectify import rectify

CONVOLUTIONS = {1: GeometricConv1d, 2: GeometricConv2d, 3: GeometricConv3d}
OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": "same", "dilation": 2},
    {"groups": 2, "bias": False},
    {"padding": 1, "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "reflect", "groups": 2},
    {"padding": "same", "padding_mode": "replicate"},
]
# Every kind of layer with every kind of option: (class, arguments, options, shape of the input).
LAYERS = [
    (GeometricLinear, (6, 4), {}, (5, 6)),
    (GeometricLinear, (6, 4), {"bias": False}, (2, 3, 6)),
    (GeometricLinear, (1, 4), {}, (5, 1)),
    (GeometricLinear, (2, 1), {}, (5, 2)),
    *[
        (ours, (4, 6, 3), options, (2, 4, *(7,) * dims))
        for dims, ours in CONVOLUTIONS.items()
        for options in OPTIONS
    ],
    (GeometricConv2d, (4, 4, 1), {"groups": 4}, (2, 4, 5, 5)),
    (GeometricConv2d, (3, 4, (3, 1)), {"stride": (2, 1)}, (3, 3, 8, 8)),
]
ONE_OF_EACH = [
    (GeometricLinear, (6, 4), (5, 6)),
    (GeometricConv1d, (4, 6, 3), (2, 4, 7)),
    (GeometricConv2d, (4, 6, 3), (2, 4, 7, 7)),
    (GeometricConv3d, (4, 6, 3), (2, 4, 5, 5, 5)),
]
HOMOGENEOUS = [nn.ReLU(), F.relu, AVR(), nn.LeakyReLU(0.1), CReLU()]
wide = st.builds(
    lambda inputs, units: (GeometricLinear, (inputs, units), {}, (5, inputs)),
    st.integers(1, 40),
    st.integers(1, 6),
)
kinds = st.sampled_from(LAYERS) | wide
activations = st.sampled_from([None, torch.tanh, CReLU(paired=1), *HOMOGENEOUS])
drawn = settings(deadline=None, max_examples=150)


def scattered(layer):
    """The layer with scales of both signs and offsets that are not 0."""
    with torch.no_grad():
        layer.scale.copy_(torch.randn_like(layer.scale))
        if layer.offset is not None:
            layer.offset.copy_(torch.randn_like(layer.offset))
    return layer


def activated(layer, activation, y):
    """The activation after a layer's output, along its channels."""
    if isinstance(activation, CReLU):
        return activation.along(y, -1 - layer.spatial)
    return y if activation is None else activation(y)


def reference(layer, x):
    """gmp Eq. 15 with the standard operation, u from the angles of Eq. 10."""
    u = unit_vector(layer.angles) if layer.sign is None else layer.sign
    y = activated(layer, layer.activation, layer._affine(x, u.view(layer.weight_shape), layer.offset))
    scale = layer.scale.repeat(2)[: y.shape[-1 - layer.spatial]]
    return scale.view(-1, *(1,) * layer.spatial) * y


@drawn
@given(kinds, st.sampled_from([None, *HOMOGENEOUS, CReLU(groups=2)]), st.integers(0, 99))
def test_conversion_keeps_outputs_and_gives_weights_back(kind, activation, seed):
    torch.manual_seed(seed)
    ours, arguments, options, shape = kind
    assume(arguments[1] % getattr(activation, "groups", 1) == 0)
    layer, x = ours.standard(*arguments, **options), torch.randn(shape)
    converted = ours.from_standard(layer, activation)
    expected = activated(converted, activation, layer(x))
    torch.testing.assert_close(converted(x), expected, atol=1e-5, rtol=1e-5)
    back = converted.to_standard()
    assert repr(back) == repr(layer)
    assert (back.weight - layer.weight).norm() <= 1e-6 * layer.weight.norm()
    if layer.bias is not None:
        assert torch.allclose(back.bias, layer.bias, rtol=1e-5)


def test_a_conversion_in_blocks_is_that_of_single_rows():
    layer = nn.Linear(20_000, 7)  # three rows a block
    whole = GeometricLinear.from_standard(layer)
    with torch.no_grad():
        layer.weight[2] = 0
    for k, row in enumerate(GeometricLinear.from_standard(layer).latitudes):
        if k != 2:
            assert torch.equal(row, whole.latitudes[k])
            assert torch.equal(row, latitudes_of(layer.weight[k]))


@drawn
@given(kinds, activations, st.integers(0, 99))
def test_output_is_equation_15_for_scales_of_either_sign(kind, activation, seed):
    torch.manual_seed(seed)
    ours, arguments, options, shape = kind
    layer, x = scattered(ours(*arguments, **options, activation=activation)), torch.randn(shape)
    expected = reference(layer, x)
    torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer(x[0]), expected[0], atol=1e-5, rtol=1e-5)


@drawn
@given(kinds, activations, st.sampled_from([-0.7, 0.0, 1.0]), st.integers(0, 99))
def test_gradients_are_those_of_equation_15_for_any_scale(kind, activation, scale, seed):
    torch.manual_seed(seed)
    ours, arguments, options, shape = kind
    layer = scattered(ours(*arguments, **options, activation=activation, dtype=torch.float64))
    nn.init.constant_(layer.scale[::2].detach(), scale)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    inputs, weight = [x, *layer.parameters()], torch.randn_like(layer(x))
    # With one input there are no latitudes to learn.
    found, expected = (
        torch.autograd.grad((y * weight).sum(), inputs, materialize_grads=True)
        for y in (layer(x), reference(layer, x))
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert found[2].abs().max() > 0 or not reference(layer, x).any()  # of the scale, unless no unit is active


def test_parametrization_keeps_the_sign_of_a_coordinate_that_is_almost_zero():
    layer = nn.Linear(2, 2)
    layer.weight.data.copy_(torch.tensor([[1.0, 1e-9], [1.0, -1e-9]]))
    assert torch.equal(geometric(layer).weight[:, 1].sign(), torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("frozen", [{"weight"}, {"weight", "bias"}, set()])
def test_conversion_keeps_frozen_what_is_frozen(frozen):
    layer = nn.Linear(3, 4)
    for name, p in layer.named_parameters():
        p.requires_grad_(name not in frozen)
    ours = GeometricLinear.from_standard(layer)
    trained = {name for name, p in ours.named_parameters() if p.requires_grad}
    assert trained == ({"latitudes", "scale"} if "weight" not in frozen else set()) | (
        {"offset"} if "bias" not in frozen else set()
    )
    back = ours.to_standard()
    assert {name for name, p in back.named_parameters() if not p.requires_grad} == frozen


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=6), st.floats(-3, 3).filter(lambda r: abs(r) > 1e-3))
def test_rectify_is_the_scale_outside_the_relu(values, scale):
    s = torch.tensor(values, dtype=torch.float64)
    r = torch.tensor(scale, dtype=torch.float64)
    assert torch.allclose(rectify(r * s, r), r * F.relu(s))


def test_nan_stays_nan_in_a_network_that_is_exported():
    layer, x = GeometricLinear(3, 4, activation=nn.ReLU()), torch.randn(2, 3)
    exported = torch.export.export(layer, (x,)).module()
    x[0, 0] = torch.nan
    for each in layer, exported:
        assert each(x)[0].isnan().all()
        assert not each(x)[1].isnan().any()


def test_rectify_has_relus_derivatives_of_both_orders_and_none_at_zero():
    z = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([1.0, -1.0, 2.0, -2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: rectify(z, scale), z, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda z: rectify(z, scale).pow(3), z)
    zero = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    rectify(zero, scale).sum().backward()
    assert torch.equal(zero.grad, torch.zeros(4, dtype=torch.float64))


def test_initial_directions_are_uniform_on_the_sphere():
    layer = GeometricLinear(30, 20_000)
    moments = layer.direction.T @ layer.direction / 20_000
    assert torch.allclose(moments, torch.eye(30) / 30, atol=2e-3)
    assert layer.direction.mean(0).abs().max() < 0.01
    assert torch.equal(layer.scale, torch.ones(20_000))
    assert torch.equal(layer.offset, torch.zeros(20_000))


def test_glorot_scales_are_the_norms_of_glorot_vectors():
    layer = GeometricConv2d(8, 400, 3, init="glorot")
    expected = math.sqrt(72 * 2 / (72 + 400 * 9))
    assert layer.scale.mean().item() == pytest.approx(expected, rel=0.02)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / (72 + 400 * 9)), rel=0.02)


def test_one_input_has_a_sign_for_a_direction_which_is_not_trained():
    layer = GeometricLinear(1, 100)
    assert set(layer.direction.flatten().tolist()) == {-1.0, 1.0}
    assert {name for name, _ in layer.named_parameters() if "sign" in name} == set()
    layer(torch.randn(3, 1)).sum().backward()
    assert layer.latitudes.grad.shape == (100, 0)


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 0.02), (torch.float16, 5e-3)],
)
def test_a_zero_filter_stays_the_constant_that_it_was_and_has_finite_gradients(dtype, tolerance):
    layer = nn.Linear(8, 4).to(dtype)
    with torch.no_grad():
        layer.weight[:2] = 0
        layer.bias[:2] = torch.tensor([3.0, 0.0])
    converted, x = GeometricLinear.from_standard(layer), torch.randn(32, 8).to(dtype)
    y = converted(x)
    assert torch.allclose(y[:, :2], layer(x)[:, :2], rtol=tolerance)
    assert torch.equal(y[:, 1], torch.zeros(32, dtype=dtype))
    y.sum().backward()
    assert all(p.isfinite().all() and p.grad.isfinite().all() for p in converted.parameters())


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-3), (torch.float16, 5e-4)])
def test_half_precision_costs_no_more_than_the_rounding_of_the_format(dtype, tolerance):
    layer = GeometricLinear(4608, 16)
    half = copy.deepcopy(layer).to(dtype)
    exact = layer.direction.double()
    error = (half.weight.double() / half.scale.double()[:, None] - exact).norm(dim=1).max()
    assert error <= tolerance
    assert half(torch.randn(2, 4608, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_scale_of_zero_has_the_gradient_of_equation_15_in_any_format(dtype, autocast):
    layer, x = GeometricLinear(64, 8, activation=nn.ReLU()), torch.randn(16, 64)
    nn.init.normal_(layer.offset)
    nn.init.zeros_(layer.scale)
    expected = torch.autograd.grad(reference(layer, x).sum(), layer.scale)[0]
    if autocast:
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            y = layer(x)
    else:
        y = layer.to(dtype)(x.to(dtype))
    assert y.dtype == dtype
    assert y.float().abs().max() < 1e-25
    found = torch.autograd.grad(y.sum(), layer.scale)[0].float()
    torch.testing.assert_close(
        found, expected, rtol=16 * torch.finfo(dtype).eps, atol=16 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("activation", [None, nn.ReLU(), torch.tanh, CReLU()])
def test_autocast_rounds_weights_and_not_angles(dtype, activation, device):
    layer = GeometricLinear(512, 16, activation=activation)
    x = torch.randn(8, 512)
    with torch.autocast(device.type, dtype):
        y = layer(x)
    assert y.dtype == dtype
    assert torch.allclose(y.float(), layer(x), atol=32 * torch.finfo(dtype).eps)
    y.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("activation", [None, nn.ReLU()])
@pytest.mark.parametrize("ours, arguments, shape", ONE_OF_EACH)
class TestLivesWithTorch:
    def test_copies_and_saved_weights_compute_the_same(self, ours, arguments, shape, activation):
        layer, other = (scattered(ours(*arguments, activation=activation)) for _ in range(2))
        x, file = torch.randn(shape), io.BytesIO()
        torch.save(layer.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(copy.deepcopy(layer)(x), layer(x))
        assert torch.equal(other(x), layer(x))
        assert list(layer.state_dict()) == ["latitudes", "scale", "offset"]

    def test_exports(self, ours, arguments, shape, activation):
        layer, x = scattered(ours(*arguments, activation=activation)), torch.randn(shape)
        assert torch.allclose(torch.export.export(layer, (x,)).module()(x), layer(x), atol=1e-6)

    def test_compiles_without_a_graph_break(self, ours, arguments, shape, activation):
        torch.compiler.reset()
        layer, x = scattered(ours(*arguments, activation=activation)), torch.randn(shape)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        parameters = list(layer.parameters())
        expected = torch.autograd.grad(layer(x).pow(2).sum(), parameters)
        found = torch.autograd.grad(compiled(x).pow(2).sum(), parameters)
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a, b, atol=1e-3, rtol=1e-4)

    def test_a_stacked_ensemble_equals_its_members(self, ours, arguments, shape, activation):
        members = [scattered(ours(*arguments, activation=activation).double()) for _ in range(3)]
        parameters, buffers = stack_module_state(members)
        x = torch.randn(shape).double()

        def call(parameters, buffers):
            return functional_call(members[0], (parameters, buffers), (x,))

        together = vmap(call)(parameters, buffers)
        assert torch.allclose(together, torch.stack([member(x) for member in members]), atol=1e-6)


def test_trains_under_ddp_as_in_one_process(on_two_processes):
    results = on_two_processes(
        """
        from torch.nn.parallel import DistributedDataParallel
        from relucid.nn import GeometricConv2d, GeometricLinear
        net = torch.nn.Sequential(
            GeometricConv2d(2, 4, 3, activation=torch.nn.ReLU()), torch.nn.Flatten(),
            GeometricLinear(16, 3),
        )
        x = torch.randn(4, 2, 4, 4)
        whole = torch.autograd.grad(net(x).pow(2).mean(), list(net.parameters()))
        parallel = DistributedDataParallel(net)
        parallel(x[rank * 2 : rank * 2 + 2]).pow(2).mean().backward()
        result = [float((p.grad - g).abs().max()) for p, g in zip(net.parameters(), whole)]
        """
    )
    assert max(map(max, results)) < 1e-6


@pytest.mark.parametrize(
    "module, name",
    [
        (nn.Linear(5, 3), "weight"),
        (nn.Linear(1, 3), "weight"),
        (nn.Conv2d(4, 6, 3, groups=2), "weight"),
        (nn.ConvTranspose2d(2, 3, 2), "weight"),
        (nn.LSTM(3, 4), "weight_ih_l0"),
        (nn.Embedding(4, 3), "weight"),
    ],
)
def test_parametrization_of_any_layer_keeps_the_weight_trains_and_can_be_undone(module, name):
    before, kind = getattr(module, name).detach().clone(), type(module)
    assert geometric(module, name) is module
    assert torch.allclose(getattr(module, name), before, atol=1e-6)
    getattr(module, name).pow(2).sum().backward()
    assert all(p.grad is not None for p in module.parametrizations.parameters())
    setattr(module, name, 2 * before)
    assert torch.allclose(getattr(module, name), 2 * before, atol=1e-6)
    parametrize.remove_parametrizations(module, name)
    assert type(module) is kind


@pytest.mark.parametrize(
    "attempt",
    [
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(3, 2))),
        lambda layer: setattr(layer, "weight", torch.ones(3, 2)),
        lambda layer: setattr(layer, "bias", None),
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: prune.random_structured(layer, "weight", 0.5, dim=0),
    ],
)
def test_a_weight_cannot_be_set(attempt):
    layer = GeometricLinear(2, 3, activation=nn.ReLU())
    before = copy.deepcopy(layer.state_dict())
    with torch.no_grad(), pytest.raises(AttributeError, match=r"`(latitudes|offset)`.*from_standard"):
        attempt(layer)
    assert all(torch.equal(layer.state_dict()[name], value) for name, value in before.items())


def test_a_weight_is_a_tensor_with_a_gradient():
    layer = GeometricLinear(2, 3)
    assert type(layer.weight) is torch.Tensor
    assert torch.equal(layer.weight, layer.weight.detach())
    layer.weight.square().sum().backward()
    torch.testing.assert_close(layer.scale.grad, 2 * layer.scale.detach())


@pytest.mark.parametrize(
    "ours, arguments, shape, activation",
    [(*kind, g) for kind, g in zip(ONE_OF_EACH, (CReLU(), nn.ReLU(), None, nn.ReLU()), strict=True)],
)
class TestIsDeployed:
    def test_by_torch_jit_trace(self, ours, arguments, shape, activation):
        layer, x = scattered(ours(*arguments, activation=activation)), torch.randn(shape)
        other = torch.randn(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of checks of shapes, and that TorchScript is deprecated
            traced = torch.jit.trace(layer, x)
        torch.testing.assert_close(traced(other), layer(other))

    def test_by_onnx(self, ours, arguments, shape, activation, tmp_path):
        onnxruntime = pytest.importorskip("onnxruntime")
        layer, x = scattered(ours(*arguments, activation=activation)).eval(), torch.randn(shape)
        path = str(tmp_path / "layer.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own
            torch.onnx.export(layer, (x,), path, verbose=False)
        session = onnxruntime.InferenceSession(path)
        (name,) = [entry.name for entry in session.get_inputs()]
        output = torch.from_numpy(session.run(None, {name: x.numpy(force=True)})[0])
        torch.testing.assert_close(output.to(x.device), layer(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ours, arguments, shape", ONE_OF_EACH)
def test_begins_on_the_meta_device(ours, arguments, shape, device):
    layer = ours(*arguments, activation=nn.ReLU(), device="meta", dtype=torch.float64)
    layer.to_empty(device=device).reset_parameters()
    norms = layer.direction.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    assert layer(torch.randn(shape).double()).dtype == torch.float64


def test_a_wide_layer_has_second_derivatives_and_partial_ones():
    layer, x = GeometricLinear(300, 4, activation=nn.ReLU()), torch.randn(5, 300, requires_grad=True)
    free = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    penalties = []
    for y, latitudes in (
        (layer(x), layer.latitudes),
        (functional_call(layer, free, (x,)), free["latitudes"]),
    ):
        (in_x,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
        penalties.append(torch.autograd.grad(in_x.pow(2).sum(), latitudes)[0])
    torch.testing.assert_close(*penalties, rtol=1e-4, atol=1e-4)
    layer.latitudes.requires_grad_(False)
    (in_scale,) = torch.autograd.grad(layer(x).sum(), layer.scale)
    (expected,) = torch.autograd.grad(reference(layer, x).sum(), layer.scale)
    torch.testing.assert_close(in_scale, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian]
)
def test_transforms_of_torch_func_take_a_layer(transform):
    layer, x = GeometricLinear(5, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    weight, bias = layer.weight.detach(), layer.bias.detach()
    expected = transform(lambda x: F.linear(x, weight, bias).square().sum())(x)
    torch.testing.assert_close(transform(lambda x: layer(x).square().sum())(x), expected)


@functools.cache
def _imagines_cuda() -> bool:
    try:
        with FakeTensorMode():
            nn.Linear(2, 3, device="cuda")
    except (AssertionError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.Tanh(), CReLU()])
@pytest.mark.parametrize("ours, arguments, shape", ONE_OF_EACH)
def test_a_training_step_reads_no_value(ours, arguments, shape, activation, device_type):
    """A fake tensor has none to read: on a GPU, reading one would wait for the device."""
    if device_type == "cuda" and not _imagines_cuda():
        pytest.skip("this torch knows no cuda, or no fake tensors on a device that is not there")
    with FakeTensorMode():
        layer = ours(*arguments, activation=activation, device=device_type)
        x = torch.empty(shape, device=device_type, requires_grad=True)
        # Autograd would ask for a device that is not there.
        with torch.set_grad_enabled(device_type == "cpu"):
            y = layer(x)
        assert y.device.type == device_type
        if device_type == "cuda":
            return
        y.sum().backward()
        assert all(p.grad.shape == p.shape for p in layer.parameters())
        torch.optim.SGD(layer.parameters(), lr=0.1).step()


def test_the_weight_of_evaluation_is_computed_once_and_neither_saved_nor_copied():
    layer, x = GeometricLinear(5, 4).eval(), torch.randn(3, 5)
    with torch.no_grad():
        layer(x)
        first = layer._evaluated
        layer(x)
        assert layer._evaluated is first
    assert copy.deepcopy(layer)._evaluated is None
    assert layer.train()._evaluated is None


def fused_step(layer):
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def by_data(layer):
    for parameter in layer.parameters():
        parameter.data.add_(0.1)


def flat_buffer(layer):
    """As sharded trainers do: parameters are parts of one tensor, which is changed as a whole."""
    flat = torch.cat([p.detach().flatten() for p in layer.parameters()])
    for p, part in zip(layer.parameters(), flat.split([p.numel() for p in layer.parameters()]), strict=True):
        p.data = part.view_as(p)
    with torch.no_grad():
        layer(torch.ones(1, 5))
    flat.mul_(0.9)


def swapped(layer):
    layer.latitudes, layer.scale = (nn.Parameter(2 * p.detach()) for p in (layer.latitudes, layer.scale))


def by_numpy(layer):
    layer.latitudes.detach().numpy()[:] += 1


CHANGES = [
    *(fused_step, by_data, flat_buffer, swapped, by_numpy),
    lambda layer: layer.load_state_dict(GeometricLinear(5, 4).state_dict()),
    lambda layer: layer.load_state_dict(GeometricLinear(5, 4).state_dict(), assign=True),
    lambda layer: nn.utils.vector_to_parameters(torch.randn(24), layer.parameters()),
    lambda layer: parametrize.register_parametrization(layer, "scale", nn.Softplus()),
    lambda layer: layer.double().float(),
    torch.no_grad()(lambda layer: layer.weight.zero_()),  # changes to it are lost
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("activation", [None, nn.ReLU(), nn.Tanh()])
def test_evaluation_never_uses_a_stale_weight(change, activation):
    layer, x = scattered(GeometricLinear(5, 4, activation=activation)).eval(), torch.randn(3, 5)
    with torch.no_grad():
        assert torch.equal(layer(x), layer(x))
    change(layer)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), reference(layer, x))


def test_a_compiled_layer_follows_its_parameters():
    torch.compiler.reset()
    layer, x = GeometricLinear(5, 4, activation=nn.ReLU()), torch.randn(3, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for change in (fused_step, by_data):
        compiled(x)
        change(layer)
        torch.testing.assert_close(compiled(x), reference(layer, x))
