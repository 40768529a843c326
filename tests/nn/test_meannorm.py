import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from relucid.nn import MeanNorm, update_norms

SHAPES = [(8, 4), (8, 4, 5), (8, 4, 5, 5), (8, 4, 3, 3, 3), (1, 4), (1, 4, 5)]


def trained(norm):
    """The norm after a few batches with a mean that is not 0, in evaluation."""
    for _ in range(3):
        norm(torch.randn(16, norm.num_features) + torch.arange(norm.num_features))
    if norm.bias is not None:
        nn.init.normal_(norm.bias)
    return norm.eval()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_training_subtracts_the_mean_of_each_channel(shape, bias):
    norm, x = MeanNorm(4, bias=bias), torch.randn(shape) + 3
    if bias:
        nn.init.normal_(norm.bias)
    means = norm(x).transpose(0, 1).flatten(1).mean(1)
    assert torch.allclose(means, norm.bias if bias else torch.zeros(4), atol=1e-6)


@pytest.mark.parametrize("momentum", [0.1, 0.5, None])
def test_running_mean_follows_batch_norms(momentum):
    norm, batch_norm = MeanNorm(4, momentum=momentum), nn.BatchNorm2d(4, momentum=momentum)
    for _ in range(3):
        x = torch.randn(8, 4, 5, 5) + 2
        norm(x)
        batch_norm(x)
    assert torch.allclose(norm.running_mean, batch_norm.running_mean, atol=1e-6)
    assert norm.num_batches_tracked == 3


def test_evaluation_subtracts_the_running_mean_and_leaves_it():
    norm, x = trained(MeanNorm(4)), torch.randn(2, 4, 3)
    before = norm.running_mean.clone()
    assert torch.equal(norm(x), x - before[:, None])
    assert torch.equal(norm.running_mean, before)


def test_gradient_passes_through_the_mean():
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    norm = MeanNorm(2, bias=True).double()
    assert torch.autograd.gradcheck(lambda x: norm(x).pow(2), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_takes_the_mean_in_float32(dtype):
    x = torch.full((4096, 2), 0.1, dtype=dtype)
    assert torch.equal(MeanNorm(2)(x), torch.zeros_like(x))


def test_channels_last_stays_channels_last():
    x = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last)
    assert MeanNorm(4)(x).is_contiguous(memory_format=torch.channels_last)


def test_processes_share_one_mean_also_with_unequal_batches(on_two_processes):
    results = on_two_processes(
        """
        from torch.nn.parallel import DistributedDataParallel
        from relucid.nn import MeanNorm, update_norms
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), MeanNorm(4, bias=True), torch.nn.Linear(4, 2)).double()
        x = torch.randn(8, 3, dtype=torch.float64)
        share = x[:6] if rank == 0 else x[6:]
        alone = torch.nn.functional.linear(x, net[0].weight, net[0].bias)
        whole = net[2](alone - alone.mean(0)).pow(2).sum()
        expected = torch.autograd.grad(whole, [net[0].weight, net[2].weight])
        parallel = DistributedDataParallel(net)
        (parallel(share).pow(2).sum() * world).backward()
        found = [net[0].weight.grad, net[2].weight.grad]
        result = {
            "gradient": max(float((a - b).abs().max()) for a, b in zip(found, expected)),
            "running": float((net[1].running_mean - 0.1 * alone.mean(0)).abs().max()),
        }
        """
    )
    assert all(result["gradient"] < 1e-12 for result in results)
    assert all(result["running"] < 1e-12 for result in results)


def test_sequences_have_their_features_last():
    norm, x = MeanNorm(4, dim=-1, bias=True), torch.randn(3, 5, 4) + 2
    assert torch.allclose(norm(x), x - x.mean((0, 1)), atol=1e-6)
    same = MeanNorm(4)
    same(x.transpose(1, 2))
    assert torch.equal(norm.running_mean, same.running_mean)
    norm.eval()
    assert torch.equal(norm(x), x - norm.running_mean)


def test_begins_on_the_meta_device_in_any_dtype(device):
    norm = MeanNorm(4, bias=True, device="meta", dtype=torch.float64)
    assert norm(torch.empty(2, 4, device="meta")).shape == (2, 4)
    norm.to_empty(device=device).reset_parameters()
    assert norm.running_mean.tolist() == norm.bias.tolist() == [0.0] * 4
    assert norm.running_mean.dtype == torch.float64
    assert norm.num_batches_tracked == 0


def test_norms_keep_their_statistics_if_there_are_no_batches_to_update_them():
    norm = MeanNorm(1)
    norm(torch.tensor([[4.0]]))
    before = norm.running_mean.clone()
    with pytest.raises(ValueError, match="no batches"):
        update_norms(iter([]), norm)
    assert torch.equal(norm.running_mean, before)


def test_update_norms_is_swa_utils_update_bn_for_both_norms():
    net = nn.Sequential(nn.Linear(3, 4), MeanNorm(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    expected, batches = copy.deepcopy(net), [(torch.randn(8, 3), torch.zeros(8)) for _ in range(3)]
    net(torch.randn(8, 3) + 5)
    net.eval()
    net[0].train()
    update_norms(batches, net)
    means = [expected[0](x).mean(0) for x, _ in batches]
    assert torch.allclose(net[1].running_mean, torch.stack(means).mean(0), atol=1e-6)
    torch.optim.swa_utils.update_bn(batches, expected)
    assert torch.allclose(net[3].running_mean, expected[3].running_mean, atol=1e-6)
    assert torch.allclose(net[3].running_var, expected[3].running_var, atol=1e-6)
    assert (net[1].momentum, net[3].momentum) == (0.1, 0.1)
    assert [module.training for module in net] == [True, False, False, False]


@pytest.mark.parametrize("dim, shape", [(1, (2, 4, 3)), (-1, (2, 3, 4))])
def test_is_exported(dim, shape):
    norm, x = trained(MeanNorm(4, bias=True)), torch.randn(shape)
    norm.dim = dim
    torch.testing.assert_close(torch.export.export(norm, (x,)).module()(x), norm(x))


def test_a_stacked_ensemble_keeps_a_mean_each():
    members = [MeanNorm(3) for _ in range(4)]
    parameters, buffers = stack_module_state(members)
    x = torch.randn(4, 8, 3)

    def call(parameters, buffers, x):
        return functional_call(members[0], (parameters, buffers), (x,))

    together = vmap(call)(parameters, buffers, x)
    assert torch.allclose(together, x - x.mean(1, keepdim=True), atol=1e-6)
    assert torch.allclose(buffers["running_mean"], 0.1 * x.mean(1))


@pytest.mark.parametrize("norm", [MeanNorm(4), MeanNorm(4, bias=True, momentum=None)])
def test_lives_with_torch(norm):
    x, other = torch.randn(2, 4, 3), MeanNorm(4, bias=norm.bias is not None)
    norm(x)
    other.load_state_dict(norm.state_dict())
    compiled = torch.compile(norm, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), x - x.mean((0, 2), keepdim=True), atol=1e-6)
    assert torch.equal(other.eval()(x), x - other.running_mean[:, None])
    norm.eval()
    torch.testing.assert_close(torch.export.export(norm, (x,)).module()(x), norm(x))
    assert torch.equal(copy.deepcopy(norm)(x), norm(x))
