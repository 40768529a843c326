import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from relucid.nn import parameter_groups
from relucid.nn.propagation import Propagation
from relucid.nn.rules import HeavyBall, RelaxedADMM, RelaxedNesterov2

ONE_PATH = ["plain", "residual", "heavy_ball", "nesterov", "nesterov2", RelaxedNesterov2(learnable=True)]
TWO_PATHS = ["admm", RelaxedADMM()]


def layer(size=4):
    return nn.Sequential(nn.Linear(size, size), nn.Tanh())


def stage(rule, depth=3, **options):
    paired = rule in TWO_PATHS
    return Propagation([(layer(), layer()) if paired else layer() for _ in range(depth)], rule, **options)


class Downsample(nn.Module):
    """A residual block that halves the image: relu(T(x) + shortcut(x))."""

    def __init__(self):
        super().__init__()
        self.conv, self.shortcut = nn.Conv2d(2, 4, 3, 2, 1), nn.Conv2d(2, 4, 1, 2)

    def forward(self, x):
        return relu(self.conv(x) + self.shortcut(x))


@pytest.mark.parametrize("rule", ["plain", "residual", "heavy_ball", "nesterov", "nesterov2"])
def test_weights_of_one_rule_load_into_any_other(rule):
    other = stage("residual")
    this = stage(rule)
    this.load_state_dict(other.state_dict())
    assert list(this.state_dict()) == [f"{k}.0.{name}" for k in range(3) for name in ("weight", "bias")]


def test_the_downsampling_block_is_child_0_and_the_rule_begins_behind_it():
    first, T = Downsample(), [nn.Conv2d(4, 4, 3, padding=1) for _ in range(2)]
    whole = Propagation(T, "heavy_ball", first=first, start="zero")
    assert [name for name, _ in whole.named_children()] == ["0", "1", "2"]
    assert whole.transforms == T
    x = torch.randn(2, 2, 8, 8)
    y = first(x)
    expected = T[1](T[0](y) + y) + (T[0](y) + y) - y
    torch.testing.assert_close(whole(x), expected)


def test_a_stage_may_be_its_downsampling_block_alone():
    first, x = Downsample(), torch.randn(2, 2, 8, 8)
    torch.testing.assert_close(Propagation([], "heavy_ball", first=first)(x), first(x))


def test_each_sum_may_be_followed_by_a_module_of_its_own():
    after = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    net, x = Propagation([layer() for _ in range(3)], "residual", after=after), torch.randn(5, 4)
    expected = x
    for T, then in zip(net.transforms, after, strict=True):
        expected = then(T(expected) + expected)
    torch.testing.assert_close(net(x), expected)


def test_learned_coefficients_are_exempt_from_weight_decay():
    net = stage(HeavyBall(learnable=True))
    _, exempt = parameter_groups(net, weight_decay=0.1)
    assert [p is q for p, q in zip(exempt["params"], [net.beta1, net.beta2], strict=True)] == [True, True]


def test_the_state_is_kept_in_its_own_dtype_and_the_transforms_compute_in_the_inputs():
    seen = []

    class Seeing(nn.Linear):
        def forward(self, x):
            seen.append(x.dtype)
            return super().forward(x)

    x = torch.randn(5, 4)
    T = [Seeing(4, 4) for _ in range(3)]
    mixed = Propagation(T, "heavy_ball", state_dtype=torch.float64)
    state = before = x.double()
    for transform in T:
        state, before = transform(state.float()).double() + state - before, state
    y = mixed(x)
    assert set(seen) == {torch.float32}
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, state.float(), rtol=1e-7, atol=2**-35)  # three states rounded to 2^-36


def test_rounding_the_state_leaves_gradients_alone():
    T, x = [layer() for _ in range(4)], torch.randn(5, 4, requires_grad=True)
    weights = [p for transform in T for p in transform.parameters()]
    exact = torch.autograd.grad(Propagation(T)(x).square().sum(), [x, *weights])
    rounded = torch.autograd.grad(Propagation(T, state_dtype=torch.float64)(x).square().sum(), [x, *weights])
    torch.testing.assert_close(rounded, exact, rtol=1e-4, atol=1e-5)


def test_a_transform_that_works_in_place_does_not_touch_a_state_of_its_own_dtype():
    x = torch.randn(5, 4, dtype=torch.float64)
    safe = Propagation([nn.ReLU(inplace=True)] * 3, "heavy_ball", state_dtype=torch.float64)
    torch.testing.assert_close(safe(x), Propagation([nn.ReLU()] * 3)(x), rtol=0, atol=2**-34)


@pytest.mark.parametrize("rule", ONE_PATH + TWO_PATHS, ids=str)
def test_runs_under_autocast(rule, device):
    net, x = stage(rule), torch.randn(5, 4)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        y = net(x)
    torch.testing.assert_close(y.float(), net(x), rtol=0.1, atol=0.1)


@pytest.mark.parametrize("rule", ONE_PATH + TWO_PATHS, ids=str)
def test_compiles_without_a_break(rule):
    torch.compiler.reset()
    net, x = stage(rule), torch.randn(5, 4)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), net(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, inside its compiler
def test_rounding_survives_the_compiler():
    torch.compiler.reset()
    net = stage("heavy_ball", state_dtype=torch.float64).double()
    y = torch.compile(net, fullgraph=True)(torch.randn(5, 4, dtype=torch.float64))
    assert torch.equal(y * 2**36, (y * 2**36).round())


@pytest.mark.parametrize(
    "rule, options",
    [
        *((rule, {"start": start}) for rule in ONE_PATH + TWO_PATHS for start in ("same", "zero")),
        ("heavy_ball", {"reversible": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("trained", [True, False])
def test_exports_for_any_batch_size(rule, options, trained):
    net, batch = stage(rule, **options), torch.export.Dim("batch")
    with torch.set_grad_enabled(trained):
        program = torch.export.export(net, (torch.randn(5, 4),), dynamic_shapes=({0: batch},))
    x = torch.randn(7, 4)
    torch.testing.assert_close(program.module()(x), net(x))


@pytest.mark.parametrize("rule", ONE_PATH + TWO_PATHS, ids=str)
def test_a_copy_computes_the_same_and_shares_nothing(rule):
    net, x = stage(rule, after=nn.ReLU()), torch.randn(5, 4)
    other = copy.deepcopy(net)
    assert torch.equal(other(x), net(x))
    assert not {p.data_ptr() for p in other.parameters()} & {p.data_ptr() for p in net.parameters()}


@pytest.mark.parametrize(
    "stage",
    ["[T() for _ in range(3)], HeavyBall(0.9, learnable=True)", "[T() for _ in range(5)], reversible=True"],
)
def test_two_processes_get_the_gradients_of_one(on_two_processes, stage):
    script = f"""
        from torch import nn
        from relucid.nn.propagation import Propagation
        from relucid.nn.rules import HeavyBall

        T = lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        net = Propagation({stage})
        x = torch.randn(6, 4)
        parallel = nn.parallel.DistributedDataParallel(net)
        parallel(x[rank::world]).square().mean().backward()
        result = {{"spread": [p.grad for p in net.parameters()]}}
        net.zero_grad()
        net(x).square().mean().backward()
        result["whole"] = [p.grad for p in net.parameters()]
    """
    for result in on_two_processes(script):
        torch.testing.assert_close(result["spread"], result["whole"])


@pytest.mark.parametrize("options", [{}, {"state_dtype": torch.float64}, {"reversible": True}], ids=str)
@pytest.mark.parametrize("transform", [nn.Linear(4, 3), nn.Linear(4, 1)], ids=["narrower", "broadcastable"])
def test_a_transform_that_changes_the_shape_is_refused(transform, options):
    net = Propagation([layer(), transform], "heavy_ball", **options)
    with pytest.raises(
        ValueError, match=r"turns shape \(5, 4\) into \(5, [13]\); .* give a block .* as `first`"
    ):
        net(torch.randn(5, 4))


def test_a_stage_has_a_length_and_its_transforms_an_index():
    net = stage("heavy_ball", depth=4, first=layer())
    assert len(net) == 4
    assert [net[0], net[-1]] == [net.transforms[0], net.transforms[3]]
    assert net[1:3] == net.transforms[1:3]
    assert list(net) == net.transforms


LEARNED = [HeavyBall(0.5, learnable=True), RelaxedNesterov2(learnable=True), RelaxedADMM(learnable=True)]


@pytest.mark.parametrize("rule", [*ONE_PATH, *TWO_PATHS, *LEARNED], ids=str)
def test_begins_on_the_meta_device(rule, device):
    with torch.device("meta"):
        net = Propagation([(layer(), layer()) if rule in [*TWO_PATHS, LEARNED[2]] else layer()] * 3, rule)
    assert net(torch.empty(5, 4, device="meta")).shape == (5, 4)
    net.to_empty(device=device)
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    x = torch.randn(5, 4)
    pairs = [tuple(each) if rule in [*TWO_PATHS, LEARNED[2]] else each for each in net.transforms]
    torch.testing.assert_close(net(x), Propagation(pairs, rule)(x))


def test_learned_coefficients_have_the_device_and_dtype_asked_for():
    net = Propagation([layer()], HeavyBall(learnable=True), device="meta", dtype=torch.float64)
    assert (net.beta1.device.type, net.beta1.dtype) == ("meta", torch.float64)
