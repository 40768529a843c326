import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, vmap
from torch.testing._internal.two_tensor import TwoTensor

from relucid.nn import angles_of, direction, latitudes_of, metric, unit_vector

PI = math.pi
PAIRS = [(unit_vector, angles_of), (direction, latitudes_of)]
SPECIAL = [
    [0.3, 1.2, 2.0, 0.5],
    [0.0, 0.5, 1.0, 2.0],
    [0.5, 0.0, 1.0, 2.0],
    [0.3, PI / 2, PI, 1.0],
    [0.0, 0.0, 0.3, 0.4],
    [PI, PI, 0.4, 0.3],
    [PI / 2, -PI / 2, 0.3, 3 * PI / 2],
    [0.1, 0.2, 0.3, 0.0],
    [0.0, PI / 2, PI, 0.0],
    [-0.4, 7.0, -3.0, 0.2],
    [0.7],
]


def reference(angles):
    """gmp Eq. 10, coordinate by coordinate."""
    sines, cosines = angles.sin(), angles.cos()
    coordinates = [cosines[..., i] * sines[..., :i].prod(-1) for i in range(angles.shape[-1])]
    return torch.stack([*coordinates, sines.prod(-1)], -1)


def vectors(dtype):
    number = st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30)
    return st.lists(number, min_size=2, max_size=8).filter(any).map(lambda w: torch.tensor(w, dtype=dtype))


def normalized(w):
    w = w.double() / w.double().abs().amax(-1, keepdim=True)
    return w / w.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("values", SPECIAL)
def test_unit_vector_is_equation_10(values):
    angles = torch.tensor(values, dtype=torch.float64)
    assert torch.allclose(unit_vector(angles), reference(angles), atol=1e-15, rtol=0)
    assert torch.allclose(direction(PI / 2 - angles), reference(angles), atol=1e-15, rtol=0)


@pytest.mark.parametrize("values", SPECIAL)
@pytest.mark.parametrize("function", [unit_vector, direction])
def test_derivatives_are_right_also_where_a_sine_or_cosine_is_zero(function, values):
    angles = torch.tensor([values, values[::-1]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, angles, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, angles, check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.parametrize("scale", [2.0, -0.5, 0.0])
@pytest.mark.parametrize("values", SPECIAL)
def test_a_scale_is_a_factor_with_derivatives_of_its_own(values, scale):
    latitudes = torch.tensor([values, values[::-1]], dtype=torch.float64, requires_grad=True)
    scales = torch.tensor([scale, 1.5], dtype=torch.float64, requires_grad=True)
    expected = scales[:, None] * direction(latitudes)
    assert torch.allclose(direction(latitudes, scales), expected, atol=1e-15)
    assert gradcheck(direction, (latitudes, scales), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(direction, (latitudes, scales), check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.parametrize("values", SPECIAL)
@pytest.mark.parametrize("function", [unit_vector, direction])
def test_a_tangent_goes_through_an_ordinary_backward_pass(function, values):
    angles = torch.tensor([values, values[::-1]], dtype=torch.float64, requires_grad=True)
    tangent, weights = torch.ones_like(angles), torch.arange(1.0, len(values) + 2, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((function(angles) * weights).sum(), angles, create_graph=True)
    (expected,) = torch.autograd.grad(gradient, angles, tangent)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(angles, tangent)
        (gradient,) = torch.autograd.grad((function(dual) * weights).sum(), dual)
        assert torch.allclose(forward_ad.unpack_dual(gradient).tangent, expected)


@given(vectors(torch.float32))
@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_round_trip_gives_the_direction_back(vector_of, coordinates_of, w):
    assert (vector_of(coordinates_of(w)) - normalized(w)).norm() < 1e-6


@given(vectors(torch.float64))
@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_round_trip_in_float64(vector_of, coordinates_of, w):
    assert (vector_of(coordinates_of(w)) - normalized(w)).norm() < 1e-14


@pytest.mark.parametrize("n, tolerance", [(2, 3e-7), (512, 3e-6), (4608, 1e-5), (25088, 1e-4)])
@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_round_trip_in_high_dimension_keeps_every_sign(vector_of, coordinates_of, n, tolerance):
    w = torch.randn(8, n)
    w[w == 0] = 1.0
    u = vector_of(coordinates_of(w))
    assert (u - normalized(w)).norm(dim=-1).max() <= tolerance
    assert torch.equal(u.sign(), w.sign())


@given(st.integers(0, 2**16), st.floats(1e-12, 1))
@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_signs_are_kept_also_beside_an_axis(vector_of, coordinates_of, seed, small):
    torch.manual_seed(seed)
    w = torch.randn(6)
    w[::2] *= small
    w[w == 0] = 1.0
    assert torch.equal(vector_of(coordinates_of(w)).sign(), w.sign())


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.0, 0.0],
        [1e-30, 0.0, 0.0],
        [0.0, 0.0, 1e30],
        [0.0, -1e30, 0.0],
        [-1.0, 0.0, 0.0],
        [1e30, 1.0, -1e-30],
        [1e28, 1e-10],
        [1e-10, 1e28, -1e-10],
        [-1e-30, 2e-30],
        [0.0, 0.0],
        [-5.0],
    ],
)
@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_degenerate_vectors_have_finite_angles_and_gradients(vector_of, coordinates_of, values):
    w = torch.tensor(values, requires_grad=True)
    angles = coordinates_of(w)
    (gradient,) = torch.autograd.grad(angles.sum(), w)
    assert angles.isfinite().all()
    assert gradient.isfinite().all()
    u = vector_of(angles)
    (gradient,) = torch.autograd.grad(u.sum(), angles)
    assert u.norm().item() == pytest.approx(1)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("coordinates_of", [angles_of, latitudes_of])
def test_angles_have_the_right_derivatives(coordinates_of):
    w = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(coordinates_of, w)
    assert gradgradcheck(coordinates_of, w)


@pytest.mark.parametrize("vector_of, coordinates_of", PAIRS)
def test_one_dimension_has_no_angle_and_the_vector_one(vector_of, coordinates_of):
    assert coordinates_of(torch.randn(4, 1)).shape == (4, 0)
    assert vector_of(torch.empty(4, 0)).tolist() == [[1.0]] * 4


def test_angles_are_in_their_ranges():
    angles = angles_of(torch.randn(1000, 6))
    assert ((angles[:, :-1] >= 0) & (angles[:, :-1] <= PI)).all()
    assert angles[:, -1].min() < 0 < angles[:, -1].max()


def test_the_callers_tensors_are_left_alone():
    angles, w = torch.zeros(3, 4), torch.randn(3, 5)
    kept = w.clone()
    unit_vector(angles)
    angles_of(w)
    assert torch.equal(angles, torch.zeros(3, 4))
    assert torch.equal(w, kept)


@pytest.mark.parametrize(
    "function, of_angles",
    [(unit_vector, lambda a: a), (direction, lambda a: PI / 2 - a)],
    ids=["angles", "latitudes"],
)
def test_vmap_grad_and_hessian_agree_with_the_reference(function, of_angles):
    angles, weights = torch.randn(6, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)

    def ours(a):
        return (function(of_angles(a)).pow(3) * weights).sum()

    def theirs(a):
        return (reference(a).pow(3) * weights).sum()

    assert torch.allclose(vmap(function, in_dims=1)(of_angles(angles.T)), reference(angles))
    assert torch.allclose(vmap(grad(ours))(angles), vmap(grad(theirs))(angles))
    assert torch.allclose(vmap(hessian(ours))(angles), vmap(hessian(theirs))(angles))


def test_vmap_takes_a_scale():
    latitudes, scales = torch.randn(6, 4), torch.randn(6)
    assert torch.equal(vmap(direction)(latitudes, scales), direction(latitudes, scales))


@pytest.mark.parametrize("function", [unit_vector, direction])
def test_compiles_without_a_graph_break(function):
    angles = torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(function(angles).pow(3).sum(), angles)
    (found,) = torch.autograd.grad(compiled(angles).pow(3).sum(), angles)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_multiplies_in_float32(dtype):
    latitudes = latitudes_of(torch.randn(4, 4608)).to(dtype)
    error = direction(latitudes).double() - direction(latitudes.double())
    assert error.norm(dim=-1).max() <= torch.finfo(dtype).eps


@given(st.integers(2, 12), st.integers(0, 2**16), st.floats(1e-3, 3))
@settings(deadline=None)
def test_a_change_of_the_angles_turns_the_vector_by_at_most_as_much(n, seed, size):
    """gmp Theorem 3: never by more than |e|; in the limit by the metric's norm of e."""
    torch.manual_seed(seed)
    angles, e = torch.randn(2, n - 1, dtype=torch.float64)

    def turned(e):
        u, v = unit_vector(angles), unit_vector(angles + e)
        return 2 * torch.atan2((u - v).norm(), (u + v).norm())

    rounding = 8 * torch.finfo(torch.float64).eps  # of the coordinates, which are at most 1
    assert turned(size * e) <= size * e.norm() * (1 + 1e-12) + rounding
    tiny = 1e-6 * e / e.norm()
    assert turned(tiny).item() == pytest.approx(
        (metric(angles) * tiny**2).sum().sqrt().item(), rel=1e-4, abs=1e-11
    )


def test_metric_is_the_product_of_squared_sines():
    angles = torch.rand(5, 4, dtype=torch.float64) * PI
    jacobian = vmap(torch.func.jacrev(reference))(angles)
    assert torch.allclose(jacobian.mT @ jacobian, torch.diag_embed(metric(angles)))


def test_wrapped_and_lazy_tensors_are_computed_as_what_they_stand_for():
    x, g = torch.randn(4, 7), torch.randn(4, 8)
    fake = direction(FakeTensorMode().from_tensor(x))
    assert fake.shape == (4, 8)
    two = direction(TwoTensor(x, 2 * x))
    torch.testing.assert_close(two.a, direction(x))
    torch.testing.assert_close(two.b, direction(2 * x))
    latitudes = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(direction(latitudes), latitudes, g)
    (found,) = torch.autograd.grad(direction(latitudes), latitudes, TwoTensor(g, g))
    torch.testing.assert_close(found.a, expected)
    (found,) = torch.autograd.grad(direction(latitudes), latitudes, torch._neg_view(g))
    torch.testing.assert_close(found, -expected)
    negative = torch.complex(torch.zeros(1, 1), torch.full((1, 1), 0.3)).conj().imag
    assert negative.is_neg()
    torch.testing.assert_close(direction(negative), direction(torch.full((1, 1), -0.3)))
    torch.testing.assert_close(direction(torch._efficientzerotensor(4, 7)), direction(torch.zeros(4, 7)))


@pytest.mark.parametrize("length", [5, 200])
def test_gradients_do_not_depend_on_how_saved_tensors_come_back(length):
    x, g = torch.randn(3, length, requires_grad=True), torch.randn(3, length + 1)
    (expected,) = torch.autograd.grad(direction(x), x, g)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t, lambda t: t.t().contiguous().t() if t.dim() == 2 else t
    ):
        w = direction(x)
    torch.testing.assert_close(torch.autograd.grad(w, x, g)[0], expected)


def test_rows_in_blocks_are_those_of_all_at_once():
    x, g = torch.randn(2100, 1000, requires_grad=True), torch.randn(2100, 1001)  # the last block is short
    parts = torch.cat([direction(part) for part in x.split(500)])
    (expected,) = torch.autograd.grad(parts, x, g)
    u = direction(x)
    assert torch.equal(u, parts)
    assert torch.equal(torch.autograd.grad(u, x, g)[0], expected)
    assert torch.equal(vmap(direction)(x.view(2, 1050, 1000)).view(2100, 1001), parts)
    with torch.no_grad():
        assert torch.equal(direction(x), parts)
        assert torch.equal(vmap(direction)(x.view(2, 1050, 1000)).view(2100, 1001), parts)


@pytest.mark.parametrize("coordinates_of", [angles_of, latitudes_of])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_vector_that_is_not_finite_has_no_angles(coordinates_of, bad):
    assert coordinates_of(torch.tensor([1.0, bad, 2.0])).isnan().all()


@pytest.mark.parametrize("length", [5, 200])
def test_no_rows_have_no_gradient_and_no_error(length):
    x = torch.randn(0, length, requires_grad=True)
    direction(x).sum().backward()
    assert x.grad.shape == (0, length)
