"""A geometric layer keeps the weight that it has built, and never computes with an old one."""

import copy
import io
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim.optimizer import _foreach_supported_types

from relucid.nn import GeometricConv2d, GeometricLinear
from relucid.nn.kept import Kept, Watched
from relucid.nn.sphere import direction


def layer_of(activation=None, dtype=torch.float32):
    return GeometricLinear(5, 4, activation=activation, dtype=dtype)


def expected(layer, x):
    """Eq. 15 from the parameters as they are now, with nothing kept."""
    u = direction(layer.latitudes.detach().clone())
    y = x.detach() @ u.T + layer.offset.detach()
    return layer.scale.detach() * (y if layer.activation is None else layer.activation(y))


def optimizer_step(layer, x):
    layer(x).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    layer.zero_grad()


def old_fashioned_step(layer, x):
    layer(x).sum().backward()
    for parameter in layer.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.5)
    layer.zero_grad()


def accumulated_step(layer, x):
    for part in x.split(1):
        layer(part).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1).step()
    layer.zero_grad()


def fused_step(layer, x):
    layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True).step()
    layer.zero_grad()


def step_of_a_flat_buffer(layer, x):
    """As some optimizers and sharded trainers do: parameters are parts of one tensor, which is changed as a whole."""
    flat = torch.cat([p.detach().flatten() for p in layer.parameters()])
    for p, part in zip(layer.parameters(), flat.split([p.numel() for p in layer.parameters()]), strict=True):
        p.data = part.view_as(p)
    with torch.no_grad():
        layer(x)
    flat.mul_(0.9)


def by_data_taken_before(layer, x):
    data = layer.latitudes.data
    with torch.no_grad():
        layer(x)
    data.mul_(0.5)


@torch.no_grad()
def one_entry(layer, x):
    layer.latitudes[1, 2] += 1


def one_entry_of_data(layer, x):
    layer.latitudes.data[1, 2] += 1


def other_data(layer, x):
    layer.latitudes.data = torch.randn(4, 4, dtype=layer.latitudes.dtype)


def same_address(layer, x):
    """Memory that is freed and handed out again."""
    for _ in range(3):
        layer.scale.data = torch.randn(4, dtype=layer.scale.dtype)


@torch.no_grad()
def one_offset(layer, x):
    layer.offset[1] += 1


def one_offset_of_data(layer, x):
    layer.offset.data[1] += 1


def new_offset(layer, x):
    layer.offset = nn.Parameter(torch.randn_like(layer.offset))


def other_activation(layer, x):
    layer.activation = {nn.ReLU: nn.Tanh, nn.Tanh: nn.ReLU}.get(type(layer.activation), nn.ReLU)()


def one_scale_below_zero(layer, x):
    with torch.no_grad():
        layer.scale[0] = -layer.scale[0].abs() - 0.1


def load(layer, x):
    layer.load_state_dict(layer_of(layer.activation).state_dict())


def assign(layer, x):
    layer.load_state_dict(layer_of(layer.activation, layer.latitudes.dtype).state_dict(), assign=True)


def flip_scales(layer, x):
    with torch.no_grad():
        layer.scale.neg_()


def zero_scales(layer, x):
    nn.init.zeros_(layer.scale)


def new_parameter(layer, x):
    layer.latitudes = nn.Parameter(torch.randn_like(layer.latitudes))


def swapped(layer, x):
    torch.utils.swap_tensors(layer.latitudes, copy.deepcopy(layer_of().to(layer.latitudes.dtype).latitudes))


def there_and_back(layer, x):
    layer.double()
    one_entry(layer, x)
    layer.float()


def by_detached_alias(layer, x):
    layer.latitudes.detach().mul_(0.5)


def reset(layer, x):
    layer.reset_parameters()


def look_with_inference_mode(layer, x):
    with torch.inference_mode():
        layer(x)


def look_without_gradients(layer, x):
    with torch.no_grad():
        layer(x)


def look_at_other_parameters(layer, x):
    other = {name: torch.randn_like(p) for name, p in layer.named_parameters()}
    functional_call(layer, other, (x,)).sum()


def evaluate(layer, x):
    layer.eval()


def train(layer, x):
    layer.train()


DEEDS = [
    *(fused_step, step_of_a_flat_buffer, by_data_taken_before),
    *(optimizer_step, old_fashioned_step, accumulated_step, one_entry, one_entry_of_data, other_data),
    *(same_address, load, assign, flip_scales, zero_scales, new_parameter, swapped, there_and_back),
    *(by_detached_alias, reset, look_with_inference_mode, look_without_gradients),
    *(look_at_other_parameters, evaluate, train),
    *(one_offset, one_offset_of_data, new_offset, other_activation, one_scale_below_zero),
]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(DEEDS), max_size=6),
    st.sampled_from([None, nn.ReLU(), nn.Tanh()]),
    st.integers(0, 999),
)
def test_whatever_happens_the_weight_is_that_of_the_parameters(deeds, activation, seed):
    torch.manual_seed(seed)
    layer, x = layer_of(activation), torch.randn(3, 5)
    layer(x)
    for deed in deeds:
        deed(layer, x)
        torch.testing.assert_close(layer(x), expected(layer, x))
        with torch.no_grad():
            torch.testing.assert_close(layer(x), expected(layer, x))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(DEEDS), max_size=4), st.integers(0, 999))
def test_gradients_are_those_of_a_layer_that_keeps_nothing(deeds, seed):
    torch.manual_seed(seed)
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    for deed in deeds:
        deed(layer, x)
    inputs = list(layer.parameters())
    found = torch.autograd.grad((layer(x) + layer(2 * x)).square().sum(), inputs)
    free = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    sums = functional_call(layer, free, (x,)) + functional_call(layer, free, (2 * x,))
    torch.testing.assert_close(found, torch.autograd.grad(sums.square().sum(), list(free.values())))


def built(layer):
    return layer._kept._built.w.data_ptr(), layer._kept._built.sources[0].version


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_a_weight_is_built_once_for_calls_that_change_nothing(mode, monkeypatch):
    builds = []
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    build = type(layer._kept)._build
    monkeypatch.setattr(type(layer._kept), "_build", lambda *a: builds.append(1) or build(*a))
    with mode():
        for _ in range(3):
            layer(x)
    assert len(builds) == 1


def test_gradients_accumulate_without_building_the_weight_anew(monkeypatch):
    layer, x = layer_of(nn.ReLU()), torch.randn(6, 5)
    layer(x).sum().backward()
    whole = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    monkeypatch.setattr(type(layer._kept), "_build", lambda *a: pytest.fail("built again"))
    for part in x.split(2):
        layer(part).sum().backward()
    torch.testing.assert_close([p.grad for p in layer.parameters()], whole)


def test_memory_is_written_again_only_when_no_graph_needs_it(device):
    if device.type != "cpu":
        pytest.skip("elsewhere another stream may still read it")
    layer, x = layer_of(), torch.randn(3, 5)
    y = layer(x)
    before = built(layer)
    with torch.no_grad():
        layer.latitudes.add_(0.1)
    other = layer(x)
    assert built(layer)[0] != before[0]
    del y, other
    before = built(layer)
    with torch.no_grad():
        layer.latitudes.add_(0.1)
    torch.testing.assert_close(layer(x), expected(layer, x))
    assert built(layer)[0] == before[0]


def test_a_graph_that_is_kept_has_the_gradients_of_its_time():
    layer, x = layer_of(nn.ReLU(), torch.float64), torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    (at_its_time,) = torch.autograd.grad(layer(x).sum(), x)
    y = layer(x).sum()
    for _ in range(2):
        with torch.no_grad():
            layer(x)
    assert torch.equal(torch.autograd.grad(y, x)[0], at_its_time)


def test_copies_and_ensembles_keep_weights_of_their_own():
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    layer(x)
    other = copy.deepcopy(layer)
    one_entry(other, x)
    torch.testing.assert_close(other(x), expected(other, x))
    torch.testing.assert_close(layer(x), expected(layer, x))
    members = [layer, other]
    parameters, buffers = stack_module_state(members)
    together = vmap(lambda p, b: functional_call(layer, (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(together, torch.stack([member(x) for member in members]))


def test_a_compiled_layer_follows_its_parameters():
    torch.compiler.reset()
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for deed in (optimizer_step, one_entry, one_entry_of_data):
        compiled(x)
        deed(layer, x)
        torch.testing.assert_close(compiled(x), expected(layer, x))


@pytest.mark.parametrize("name", ["latitudes", "scale", "offset"])
def test_a_parameter_that_becomes_a_function_of_another_is_followed(name):
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    with torch.no_grad():
        layer(x)
        nn.utils.parametrize.register_parametrization(layer, name, nn.Softplus())
        torch.testing.assert_close(layer(x), expected(layer, x))
        layer.parametrizations[name].original.add_(1)
        torch.testing.assert_close(layer(x), expected(layer, x))


def test_what_evaluation_keeps_does_not_keep_training_from_using_the_memory_again():
    layer, x = layer_of(nn.ReLU()), torch.randn(3, 5)
    layer(x).sum().backward()
    look_without_gradients(layer, x)
    address = layer._kept._built.w.data_ptr()
    one_entry(layer, x)
    layer(x).sum().backward()
    assert layer._kept._built.w.data_ptr() == address


def test_evaluation_keeps_the_weight_alone():
    layer = GeometricConv2d(2, 3, 3)
    with torch.no_grad():
        layer(torch.randn(1, 2, 5, 5))
    assert layer._kept._built.p is None


def test_trains_under_ddp_step_after_step_as_alone(on_two_processes):
    results = on_two_processes(
        """
        import copy
        from torch.nn.parallel import DistributedDataParallel
        from relucid.nn import GeometricLinear
        net = torch.nn.Sequential(GeometricLinear(4, 4, activation=torch.nn.ReLU()), GeometricLinear(4, 2))
        alone, x = copy.deepcopy(net), torch.randn(4, 4)
        parallel = DistributedDataParallel(net)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (net, alone)]
        for _ in range(4):
            parallel(x[rank::world]).square().mean().backward()
            alone(x).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        result = [float((p - q).detach().abs().max()) for p, q in zip(net.parameters(), alone.parameters())]
        """
    )
    assert max(map(max, results)) < 1e-6


def test_optimizers_take_these_parameters_in_one_call():
    layer = GeometricLinear(4, 3)
    assert {type(parameter) for parameter in layer.parameters()} <= set(_foreach_supported_types)
    one, other = copy.deepcopy(layer), copy.deepcopy(layer)
    for net, together in ((one, True), (other, False)):
        net(torch.ones(2, 4)).sum().backward()
        torch.optim.SGD(net.parameters(), lr=0.1, foreach=together).step()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    "transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian]
)
def test_transforms_of_torch_func_take_a_layer_that_was_never_called_or_was_changed(transform):
    layer, x = layer_of(), torch.randn(5, dtype=torch.float64)
    layer.double()

    def total(x):
        return layer(x).square().sum()

    expected = transform(lambda x: F.linear(x, layer.weight.detach(), layer.bias.detach()).square().sum())
    layer.activation = None
    torch.testing.assert_close(transform(total)(x), expected(x))
    total(x).backward()
    fused = torch.optim.SGD(layer.parameters(), lr=0.1, fused=True)
    fused.step()
    torch.testing.assert_close(transform(total)(x), expected(x))


def test_weights_are_kept_through_copies_averages_and_other_precisions():
    layer = layer_of()
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    averaged.update_parameters(layer)
    copy.deepcopy(layer.double()).load_state_dict(layer.state_dict())
    for each in (layer, averaged.module):
        assert not any(p.exposed for p in each.parameters())


def test_pickled_layers_share_what_they_shared():
    first, second = layer_of(), layer_of()
    second.latitudes = first.latitudes
    buffer = io.BytesIO()
    torch.save(nn.ModuleList([first, second]), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert loaded[0].latitudes is loaded[1].latitudes
    assert type(loaded[0].latitudes) is Watched
    torch.testing.assert_close(loaded[0].latitudes, first.latitudes)


def test_threads_that_need_a_new_weight_at_once_do_not_share_its_memory(monkeypatch):
    """Each of two threads waits, once it has asked for memory, until the other has."""
    layer = GeometricLinear(6, 4)
    x = torch.randn(3, 6)
    layer(x).sum().backward()
    with torch.no_grad():
        layer.latitudes.add_(0.1)
    both, given, ask = threading.Barrier(2), [], Kept._free_memory

    def asked(self, latitudes):
        given.append(ask(self, latitudes))
        both.wait(timeout=10)
        return given[-1] if len(given) == 1 else None

    monkeypatch.setattr(Kept, "_free_memory", asked)
    threads = [threading.Thread(target=lambda: layer(x)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(memory is not None for memory in given) == 1
