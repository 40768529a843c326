"""What people do with networks that they have converted, and networks that they convert in daily use."""

import io
import pickle

import pytest
import torch
from torch import nn

from relucid.convert import ArgumentError, ConversionError, UnchangedWarning, load, to_crelu, to_heavy_ball


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.first(x).relu())


X = torch.randn(9, 4)


def through_torch(network):
    buffer = io.BytesIO()
    torch.save(network, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("copied", [through_torch, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_converted_network_is_saved_whole_and_loaded_again(copied):
    converted = to_crelu(Net(), X).model
    again = copied(converted)
    assert type(again) is Net
    assert torch.equal(again(X), converted(X))
    again(X).sum().backward()
    assert again.first.weight.grad is not None


@pytest.mark.needs("safetensors")
def test_weights_of_a_converted_network_do_not_load_into_the_original_without_a_word(tmp_path):
    conversion = to_crelu(Net(), X)
    with pytest.raises(RuntimeError, match="size mismatch"):
        Net().load_state_dict(conversion.model.state_dict())
    conversion.save(tmp_path)
    assert torch.equal(load(tmp_path, Net())(X), conversion.model(X))


class Latent(nn.Module):
    """A variational autoencoder, whose mu + eps * sigma is no residual block."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (
            nn.Linear(4, 8),
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)),
        )

    def forward(self, x):
        mu, spread = self.encoder(x).chunk(2, 1)
        return self.decoder(mu + torch.ones_like(spread) * spread.exp())


class Embedded(nn.Module):
    """The sum of two embeddings, which is no residual block either."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, ids):
        return self.layers(self.words(ids) + self.places(torch.arange(ids.shape[1])))


@pytest.mark.parametrize("network, example", [(Latent(), X), (Embedded(), torch.randint(9, (3, 5)))])
def test_a_sum_is_a_residual_block_only_if_it_adds_to_its_own_input(network, example):
    with pytest.raises(ConversionError, match="with two residual blocks"):
        to_heavy_ball(network, example)


def test_a_conversion_that_changes_nothing_warns():
    with pytest.warns(UnchangedWarning, match="to_crelu changes no layer"):
        assert not to_crelu(nn.Sequential(nn.Linear(4, 6), nn.ReLU6(), nn.Linear(6, 2)), X).changed


class Policy(nn.Module):
    """An actor-critic as reinforcement learning has it: checks of types, a cache, several outputs."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.action, self.value = nn.Linear(16, 2), nn.Linear(16, 1)
        self.cache = {}

    def forward(self, observation):
        if isinstance(observation, dict):
            observation = observation["observation"]
        if observation.dim() == 1:
            observation = observation.unsqueeze(0)
        shared = self.shared(observation)
        self.cache["last"] = shared.detach()
        return torch.distributions.Categorical(logits=self.action(shared)).probs, self.value(shared)


class Steps(nn.Module):
    """A loop over time, as long as the input."""

    def __init__(self):
        super().__init__()
        self.read, self.keep, self.last = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        state = x.new_zeros(len(x), 8)
        for step in range(x.shape[1]):
            state = torch.tanh(self.keep(state) + self.read(x[:, step]))
        return self.last(nn.functional.relu(self.keep(state)))


def test_a_policy_with_checks_of_types_and_a_cache_is_converted():
    policy = Policy()
    converted = to_crelu(policy, X).model
    for observation in X, X[0], {"observation": X}:
        for ours, theirs in zip(converted(observation), policy(observation), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert converted.shared[2].in_features == 32


def test_a_network_with_a_loop_over_time_stays_right_for_other_lengths():
    network = nn.Sequential(Steps(), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    converted = to_crelu(network, torch.randn(3, 5, 4)).model
    longer = torch.randn(3, 11, 4)
    torch.testing.assert_close(converted(longer), network(longer))
    assert converted[3].in_features == 16


def test_a_layer_with_spectral_norm_stays_and_the_other_layers_are_converted():
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6))
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), normed, nn.ReLU(), nn.Linear(6, 2)).eval()
    conversion = to_crelu(net, X)
    torch.testing.assert_close(conversion.model(X), net(X))
    assert {change.name for change in conversion.changes if change.status == "changed"} == {"3", "4"}


def test_networks_that_share_an_encoder_are_converted_as_one():
    encoder = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    actor, critic = nn.Sequential(encoder, nn.Linear(6, 2)), nn.Sequential(encoder, nn.Linear(6, 1))
    both = nn.ModuleDict({"actor": actor, "critic": critic})
    optimizer = torch.optim.Adam(both.parameters())
    before = actor(X), critic(X)
    with pytest.raises(ArgumentError, match="ModuleDict"):
        to_crelu({"actor": actor, "critic": critic}, X)
    call = lambda net, x: [part(x) for part in net.values()]  # noqa: E731
    to_crelu(both, X, inplace=True, optimizer=optimizer, call=call)
    torch.testing.assert_close((actor(X), critic(X)), before)
    assert actor[1].in_features == critic[1].in_features == 12
