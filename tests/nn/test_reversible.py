import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from relucid.nn import GeometricLinear
from relucid.nn.propagation import Propagation
from relucid.nn.reversible import to_state
from relucid.nn.rules import HeavyBall

quick = settings(deadline=None, max_examples=30)


def block(channels=4):
    """The transform of HB-Net: two convolutions with batch norm, a ReLU between them."""
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
    )


def dense(size=4):
    return nn.Sequential(nn.Linear(size, size), nn.Tanh())


def pair(transforms, rule="heavy_ball", **options):
    """The same stage twice: reversible, and ordinary with the same state_dtype."""
    store_every = options.pop("store_every", None)
    reversible = Propagation(transforms, rule, reversible=True, store_every=store_every, **options)
    ordinary = Propagation(copy.deepcopy(transforms), rule, state_dtype=torch.float64, **options)
    return reversible, ordinary


def output_and_gradients(stage, x):
    """What a training step of the stage leaves behind: output, and the gradients of input and parameters."""
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    y = stage(x)
    torch.manual_seed(2)
    weight = torch.randn_like(y)
    (y * weight).sum().backward()
    return y, [x.grad, *[p.grad for p in stage.parameters()]]


def relative_error(found, expected):
    found, expected = (
        torch.cat([g.flatten() for g in gradients]).double() for gradients in (found, expected)
    )
    return float((found - expected).norm() / expected.norm())


def agree(stages, x, **tolerances):
    """Whether both stages of a pair leave the same output, and nearly the same gradients."""
    (y, found), (expected_y, expected) = (output_and_gradients(stage, x) for stage in stages)
    assert torch.equal(y, expected_y)
    torch.testing.assert_close(found, expected, **({"rtol": 1e-6, "atol": 1e-7} | tolerances))


@quick
@given(
    st.integers(1, 8),
    st.sampled_from(["same", "zero"]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([block, dense]),
)
def test_output_and_gradients_are_those_of_an_ordinary_stage(depth, start, store_every, make):
    x = torch.randn(2, 4, 5, 5) if make is block else torch.randn(3, 4)
    agree(pair([make() for _ in range(depth)], start=start, store_every=store_every), x)


@pytest.mark.parametrize(
    "dtype, depth, channels, size, batch, tolerance",
    [
        (torch.float64, 50, 4, 6, 4, 1e-10),
        (torch.float32, 300, 4, 6, 4, 1e-5),
        pytest.param(torch.float32, 1000, 16, 16, 16, 1e-5, marks=pytest.mark.slow),
    ],
)
def test_gradients_agree_at_any_depth(dtype, depth, channels, size, batch, tolerance):
    x = torch.randn(batch, channels, size, size, dtype=dtype)
    stages = pair([block(channels).to(dtype) for _ in range(depth)])
    (y, found), (expected_y, expected) = (output_and_gradients(stage, x) for stage in stages)
    assert torch.equal(y, expected_y)
    assert relative_error(found, expected) <= tolerance


def bytes_kept(stage, x):
    parameters = {p.data_ptr() for p in stage.parameters()}
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        stage(x)
    return sum(storage.nbytes() for address, storage in kept.items() if address not in parameters)


def test_what_is_kept_for_backward_does_not_grow_with_depth():
    x = torch.randn(8, 4, 16, 16)
    at = {depth: bytes_kept(Propagation([block()] * depth, reversible=True), x) for depth in (10, 200)}
    assert at[200] <= 1.15 * at[10]
    ordinary = {depth: bytes_kept(Propagation([block()] * depth), x) for depth in (10, 200)}
    assert ordinary[200] >= 15 * ordinary[10]


def test_running_statistics_are_those_of_one_forward_pass():
    x = torch.randn(4, 4, 6, 6)
    reversible, ordinary = pair([block() for _ in range(4)])
    output_and_gradients(reversible, x)
    output_and_gradients(ordinary, x)
    assert int(reversible.get_buffer("0.1.num_batches_tracked")) == 1
    for found, expected in zip(reversible.buffers(), ordinary.buffers(), strict=True):
        assert torch.equal(found, expected)


def test_dropout_is_recomputed_with_its_mask_and_draws_as_often_as_one_forward_pass():
    x = torch.randn(16, 4)
    reversible, ordinary = pair([nn.Sequential(dense(), nn.Dropout(0.5)) for _ in range(6)])
    agree((reversible, ordinary), x)
    for stage in (reversible, ordinary):
        torch.manual_seed(3)
        stage(x).sum().backward()
        stage.after_pass = torch.rand(())
    assert reversible.after_pass == ordinary.after_pass


def test_backward_recomputes_under_the_autocast_of_forward(device):
    x = torch.randn(16, 4)
    reversible, ordinary = pair([dense() for _ in range(6)])
    for stage in (reversible, ordinary):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = stage(x).square().sum()
        loss.backward()
    found, expected = ([p.grad for p in stage.parameters()] for stage in (reversible, ordinary))
    assert relative_error(found, expected) <= 1e-6
    full = copy.deepcopy(ordinary)
    full.zero_grad()
    full(x).square().sum().backward()
    assert relative_error([p.grad for p in full.parameters()], expected) > 1e-4  # bfloat16 was really used


def test_weights_shared_with_a_later_layer_get_both_gradients_under_autocast(device):
    shared = nn.Linear(4, 4)
    x = torch.randn(16, 4)
    reversible, ordinary = pair([shared] * 3)
    ordinary_shared = ordinary.transforms[0]
    for stage, last in ((reversible, shared), (ordinary, ordinary_shared)):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = last(stage(x)).float().square().sum()
        loss.backward()
    assert relative_error([shared.weight.grad], [ordinary_shared.weight.grad]) <= 2**-8  # bfloat16 sums


@pytest.mark.parametrize(
    "rule", [HeavyBall(learnable=True), HeavyBall([0.9, 1.0, 1.1], learnable=True)], ids=str
)
def test_learned_coefficients_get_their_gradients(rule):
    x = torch.randn(16, 4)
    reversible, ordinary = pair([dense() for _ in range(3)], rule)
    agree((reversible, ordinary), x, rtol=1e-5, atol=1e-6)
    assert reversible.beta1.grad.abs().sum() > 0
    assert reversible.beta2.grad.abs().sum() > 0


def test_frozen_and_unused_parameters_do_not_disturb_the_others():
    x = torch.randn(16, 4)
    reversible, ordinary = pair([dense() for _ in range(3)])
    for stage in (reversible, ordinary):
        stage.get_parameter("1.0.weight").requires_grad_(False)
        stage(x).sum().backward()
    for found, expected in zip(reversible.parameters(), ordinary.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-6, atol=1e-7)


def test_a_parameter_s_hook_runs_once():
    stage, calls = Propagation([dense()], reversible=True), []
    stage.get_parameter("0.0.weight").register_hook(calls.append)
    stage(torch.randn(3, 4)).sum().backward()
    assert len(calls) == 1


def test_without_gradients_the_output_is_the_same():
    stage, x = Propagation([dense() for _ in range(5)], reversible=True), torch.randn(3, 4)
    with torch.no_grad():
        quiet = stage(x)
    assert torch.equal(quiet, stage(x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, where its graph breaks
def test_a_compiled_stage_trains_on():
    torch.compiler.reset()
    reversible, ordinary = pair([dense() for _ in range(3)])
    x = torch.randn(3, 4)
    _, found = output_and_gradients(torch.compile(reversible, backend="eager"), x)
    _, expected = output_and_gradients(ordinary, x)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


class Noisy(nn.Module):
    """Never twice the same, and not by torch's random numbers."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + 1e-3 * self.calls


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_transform_that_does_not_repeat_itself_is_found_out(place):
    T = [dense() for _ in range(3)]
    T[place] = Noisy()
    y = Propagation(T, reversible=True)(torch.randn(3, 4, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"missed its input.*does not repeat its own result"):
        y.sum().backward()


def test_a_state_too_large_for_exact_sums_has_the_gradients_of_an_ordinary_stage():
    x = 2**20 * torch.randn(3, 4, dtype=torch.float64)
    reversible, ordinary = pair([nn.Sequential(nn.LayerNorm(4), dense()).double() for _ in range(4)])
    (_, found), (_, expected) = output_and_gradients(reversible, x), output_and_gradients(ordinary, x)
    assert relative_error(found, expected) <= 1e-8


@pytest.mark.parametrize("size", [1e4, 1e30, float("inf"), float("nan")])
def test_a_stage_that_diverges_has_gradients_that_are_no_numbers(size):
    T = [nn.Linear(4, 4) for _ in range(6)]
    for transform in T:
        nn.init.constant_(transform.weight, size)
    reversible, ordinary = pair(T)
    x = torch.ones(3, 4, requires_grad=True)
    torch.testing.assert_close(reversible(x), ordinary(x), equal_nan=True)
    reversible(x).sum().backward()
    assert all(p.grad.isnan().all() for p in (x, *reversible.parameters()))


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (1, 0, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0), (0, 3, 1, 2)])
def test_the_layout_of_the_input_does_not_matter(order):
    x = torch.randn(8, 8, 8, 8).permute(order).requires_grad_()
    reversible, ordinary = pair([block(8) for _ in range(10)])
    found, expected = (
        torch.autograd.grad(stage(x).square().sum(), [x, *stage.parameters()])
        for stage in (reversible, ordinary)
    )
    assert relative_error(found, expected) <= 1e-5


def test_states_keep_the_layout_of_the_input():
    seen = []

    class Seeing(nn.Conv2d):
        def forward(self, x):
            seen.append(x.stride())
            return super().forward(x).contiguous()

    x = torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
    Propagation([Seeing(4, 4, 1) for _ in range(3)], reversible=True)(x).sum().backward()
    assert set(seen) == {x.stride()}
    assert len(seen) == 6


def test_checkpointing_a_reversible_stage_gives_its_gradients():
    stage, x = Propagation([dense() for _ in range(3)], reversible=True), torch.randn(3, 4)
    _, expected = output_and_gradients(stage, x)
    stage.zero_grad()
    checkpointed = nn.Module()
    checkpointed.forward = lambda x: checkpoint(stage, x, use_reentrant=False)
    _, (found, *_) = output_and_gradients(checkpointed, x)
    torch.testing.assert_close([found, *[p.grad for p in stage.parameters()]], expected)


def test_gradients_accumulate_over_batches():
    reversible, ordinary = pair([block() for _ in range(3)])
    for _ in range(3):
        x = torch.randn(2, 4, 5, 5)
        for stage in (reversible, ordinary):
            stage(x).square().sum().backward()
    found, expected = ([p.grad for p in stage.parameters()] for stage in (reversible, ordinary))
    assert relative_error(found, expected) <= 1e-5


def test_transforms_may_be_compiled():
    torch.compiler.reset()
    reversible, ordinary = pair([dense() for _ in range(3)])
    for k, transform in enumerate(reversible.transforms):
        reversible.add_module(str(k), torch.compile(transform, backend="aot_eager"))
    x = torch.randn(3, 4)
    agree((reversible, ordinary), x, rtol=1e-5, atol=1e-6)


def test_parameters_given_by_functional_call_are_those_of_backward():
    stage, x = Propagation([dense() for _ in range(3)], reversible=True), torch.randn(3, 4)
    given_ = {name: torch.randn_like(p, requires_grad=True) for name, p in stage.named_parameters()}
    functional_call(stage, given_, (x,)).sum().backward()
    other = Propagation([dense() for _ in range(3)], state_dtype=torch.float64)
    other.load_state_dict({name: p.detach() for name, p in given_.items()})
    other(x).sum().backward()
    torch.testing.assert_close([p.grad for p in given_.values()], [p.grad for p in other.parameters()])
    assert all(p.grad is None for p in stage.parameters())


def test_geometric_transforms_repeat_their_result_with_hooks_too():
    T = [GeometricLinear(4, 4, activation=nn.ReLU()) for _ in range(5)]
    reversible, ordinary = pair(T)
    for parameter in reversible.parameters():
        parameter.register_hook(lambda grad: grad)
    x = torch.randn(3, 4)
    agree((reversible, ordinary), x, rtol=1e-5, atol=1e-6)


def test_weights_changed_before_backward_are_found_out():
    stage = Propagation([dense()], reversible=True)
    y = stage(torch.randn(3, 4)).sum()
    with torch.no_grad():
        stage.get_parameter("0.0.weight").add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_drift_where_beta2_is_not_minus_one_is_found_out_and_cured_by_storing_states():
    x, T = torch.randn(4, 4, 6, 6), [block() for _ in range(60)]
    rule = HeavyBall(0.5)  # an error doubles in every layer
    y = Propagation(T, rule, reversible=True)(x)
    with pytest.raises(RuntimeError, match=r"rounding errors grow where beta2 is not -1: .*\(store_every\)"):
        y.sum().backward()
    reversible, ordinary = pair(T, rule, store_every=10)
    (_, found), (_, expected) = output_and_gradients(reversible, x), output_and_gradients(ordinary, x)
    assert relative_error(found, expected) <= 1e-5


@quick
@given(st.floats(-(2.0**15), 2.0**15))
def test_a_float64_state_is_the_nearest_multiple_of_2_to_the_minus_36(value):
    state = to_state(torch.tensor(value, dtype=torch.float64), torch.float64)
    assert float(state * 2**36).is_integer()
    assert abs(float(state) - value) <= 2**-37


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16])
def test_other_states_are_not_rounded(dtype):
    x = torch.randn(100)
    assert torch.equal(to_state(x, dtype), x if dtype is None else x.to(dtype))


def test_second_derivatives_are_refused():
    stage = Propagation([nn.Linear(6, 6)] * 2, HeavyBall(beta1=1.0, beta2=-1.0), reversible=True)
    x = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives; use reversible=False"):
        torch.autograd.grad(stage(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("outside", [lambda c: c, lambda c: c * 2])
def test_a_tensor_that_would_lose_its_gradient_is_refused(outside):
    class Conditioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.given = nn.Linear(6, 6), [None]

        def forward(self, x):
            return (self.linear(x) + self.given[0]).relu()

    transforms, c = [Conditioned() for _ in range(2)], torch.randn(6, requires_grad=True)
    for each in transforms:
        each.given[0] = outside(c)
    stage = Propagation(transforms, HeavyBall(beta1=1.0, beta2=-1.0), reversible=True)
    with pytest.raises(RuntimeError, match="Conditioned computes with a tensor of shape"):
        stage(torch.randn(4, 6)).sum().backward()
