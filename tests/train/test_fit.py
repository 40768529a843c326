import io
import math
import zipfile
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relucid.data import Split, color, moments, ten_crops
from relucid.train import DivergedError, Machine, Recipe, fit
from relucid.train.batches import Batches, mix
from relucid.train.plateau import PlateauState

from .problems import PLAIN, PLATEAU, same, small_images, small_network


class Stops(Split):
    """A part that ends the process, so to speak, at the batch with this number."""

    def batch(self, indices, seed=0):
        left = self.__dict__.setdefault("left", [self.__dict__["at"]])
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("killed")
        return super().batch(indices, seed)


def stopping(part, at):
    broken = Stops(part.inputs, part.targets)
    broken.__dict__["at"] = at
    return broken


def test_it_is_the_loop_one_would_write():
    recipe = Recipe(
        epochs=4, batch_size=16, lr=0.05, weight_decay=0.01, steps=(2,), optimizer="nesterov", clip=0.5
    )
    train, held = small_images(50), small_images(30, seed=2)
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    reference = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    reference.load_state_dict(network.state_dict())
    fitted = fit(network, train, recipe, held, seed=5)

    normal, epoch = moments(train), [0]
    optimizer = torch.optim.SGD(reference.parameters(), 0.05, 0.9, weight_decay=0.01, nesterov=True)
    for epoch[0] in range(4):
        optimizer.param_groups[0]["lr"] = 0.05 if epoch[0] < 2 else 0.05 * 0.1
        losses = []
        for inputs, targets in Batches(train, 16).epoch(mix(5, epoch[0])):
            optimizer.zero_grad()
            loss = F.cross_entropy(reference(normal.normalize(inputs)), targets)
            loss.backward()
            nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item() * len(targets))
        assert fitted.history["train_loss"][epoch[0]] == pytest.approx(sum(losses) / 50, rel=1e-6)
        outputs = reference(normal.normalize(held.inputs))
        assert fitted.history["val_loss"][epoch[0]] == pytest.approx(
            F.cross_entropy(outputs, held.targets).item()
        )
    assert same(network, reference)
    assert fitted.history["lr"] == [0.05, 0.05, 0.05 * 0.1, 0.05 * 0.1]
    assert fitted.evaluate(held)["loss"] == pytest.approx(fitted.history["val_loss"][-1])


def test_data_in_any_form_are_examples_that_are_read_only_when_they_are_needed():
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    networks = [nn.Linear(3, 2) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    recipe = Recipe(epochs=2, normalize=False)
    split = fit(networks[0], Split(x, y), recipe)
    pair = fit(networks[1], (x.numpy(), y.numpy()), recipe, [(x[0], 1), (x[1], 0)])
    assert same(*networks)
    assert len(pair.history["val_error"]) == 2
    assert pair.evaluate((x, y)) == split.evaluate(Split(x, y))
    with pytest.raises(TypeError, match="no targets"):
        fit(networks[0], x, recipe)
    with pytest.raises(TypeError, match="one of them"):
        fit(networks[0], ((x, y), (x, y)), recipe)


def test_tokens_stay_integers_in_training_and_in_prediction():
    tokens = torch.randint(20, (30, 5), generator=torch.Generator().manual_seed(0))
    train = Split(tokens, tokens[:, 0] % 2)
    network = nn.Sequential(nn.Embedding(20, 4), nn.Flatten(), nn.Linear(20, 2))
    fitted = fit(network, train, Recipe(epochs=1, batch_size=None, lr=0.1))
    assert torch.equal(fitted.predict(train), network(tokens))
    assert fitted.evaluate(train)["loss"] == F.cross_entropy(network(tokens), train.targets).item()


def test_a_table_changes_the_weight_decay_too():
    recipe = Recipe(epochs=2, batch_size=None, lr=9.0, momentum=0.0, table=((1, 0.1, 0.5), (2, 0.1, 0.0)))
    network = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    with torch.no_grad():
        network[1].weight.fill_(1.0)
    train = Split(torch.zeros(4, 3, 6, 6), torch.tensor([0, 1, 0, 1]))  # no gradient in the weight
    fit(network, train, recipe)
    assert (network[1].weight == torch.tensor(1.0) - 0.1 * 0.5).all()


@pytest.mark.parametrize("recipe", [PLAIN, PLATEAU], ids=["steps", "plateau"])
def test_the_same_seed_gives_the_same_weights_bit_for_bit_and_another_one_others(recipe):
    train, held = small_images(), small_images(30, seed=2)
    first, second, third = (fit(small_network(), train, recipe, held, seed=seed) for seed in (1, 1, 2))
    assert same(first.network, second.network)
    assert first.history == second.history
    assert not same(first.network, third.network)


@pytest.mark.parametrize("recipe", [PLAIN, PLATEAU], ids=["steps", "plateau"])
# three reads before training, then four batches an epoch
@pytest.mark.parametrize(
    "at, save_every, workers",
    [(10, None, 0), (14, None, 0), *((at, 1, workers) for at in (6, 10, 11, 14, 17) for workers in (0, 2))],
)
def test_a_training_that_was_killed_ends_at_the_same_weights_as_one_that_was_not(
    tmp_path, recipe, at, save_every, workers
):
    train, held = small_images(), small_images(30, seed=2)
    whole = fit(small_network(), train, recipe, held, seed=4)
    machine = Machine(directory=tmp_path, save_every=save_every)
    with pytest.raises(RuntimeError, match="killed"):
        fit(small_network(), stopping(train, at), replace(recipe), held, seed=4, machine=machine)
    assert torch.load(tmp_path / "last.ckpt")["step"] == ((at - 3) % 4 if save_every else 0)
    torch.manual_seed(99)
    machine = replace(machine, workers=workers)
    resumed = fit(small_network(seed=8), train, recipe, held, seed=4, machine=machine)
    assert same(whole.network, resumed.network)
    assert whole.history == resumed.history


@pytest.mark.parametrize("recipe", [PLAIN, PLATEAU], ids=["steps", "plateau"])
def test_a_training_that_was_finished_is_not_trained_again(tmp_path, recipe):
    train, held, machine = small_images(), small_images(30, seed=2), Machine(directory=tmp_path)
    first = fit(small_network(), train, recipe, held, machine=machine)
    only_moments = stopping(train, 3)  # and a trial of the network
    again = fit(small_network(seed=8), only_moments, recipe, held, machine=machine)
    assert same(first.network, again.network)
    assert first.history == again.history


def test_a_plateau_lowers_the_rate_stops_and_restores_the_best_weights():
    train, held = small_images(), small_images(30, seed=2)
    fitted = fit(small_network(), train, PLATEAU, held)
    values, rates, state = fitted.history["val_loss"], fitted.history["lr"], PlateauState.start(1)
    for value, rate in zip(values, rates, strict=True):
        assert rate == 0.01 * state.factor.item()
        state.update(torch.tensor([value]), PLATEAU.plateau)
    assert state.waited == 4
    assert len(values) < 30
    assert fitted.evaluate(held)["loss"] == pytest.approx(min(values), rel=1e-5)


def test_training_ends_at_the_target_loss():
    history = fit(small_network(), small_images(), PLAIN).history["train_loss"]
    target = sorted(history)[2]
    reached = next(epoch for epoch, loss in enumerate(history, 1) if loss <= target)
    found = fit(small_network(), small_images(), replace(PLAIN, target_loss=target)).history["train_loss"]
    assert found == history[:reached]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_loss_that_is_not_finite_ends_the_run_with_its_history(bad, tmp_path):
    train = Split(torch.randn(20, 3), torch.randn(20, 1))

    class Breaks(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * (1.0 if self.calls <= 4 else bad)

    recipe = Recipe(epochs=5, batch_size=10, loss="mse", lr=0.01)
    with pytest.raises(DivergedError, match=r"(nan|inf) in epoch 3") as caught:
        fit(Breaks(3, 1), train, recipe, machine=Machine(directory=tmp_path))
    assert len(caught.value.history["train_loss"]) == 2


@pytest.mark.parametrize(
    "normalize, dtype, values",
    [
        (False, torch.float32, [10.0, 50.0]),
        ("mean", torch.float32, [-20.0, 20.0]),
        ("mean", torch.uint8, [-20 / 255, 20 / 255]),
    ],
)
def test_inputs_can_be_left_as_they_are_or_centred_and_not_scaled(normalize, dtype, values):
    inputs = torch.tensor([[10], [50]], dtype=dtype)
    recipe = Recipe(epochs=1, loss="mse", normalize=normalize)
    fitted = fit(nn.Linear(1, 1), Split(inputs, torch.ones(2, 1)), recipe)
    torch.testing.assert_close(fitted.moments.normalize(inputs).flatten(), torch.tensor(values))


def test_a_mean_image_can_be_subtracted_and_colours_still_vary_as_those_of_the_training_set():
    inputs = torch.randint(0, 256, (40, 3, 4, 4), dtype=torch.uint8)
    recipe = Recipe(epochs=1, normalize="mean_image")
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    found = fit(network, Split(inputs, torch.arange(40) % 2), recipe).moments
    torch.testing.assert_close(found.normalize(inputs), (inputs.float() - inputs.float().mean(0)) / 255)
    torch.manual_seed(0)
    shift = color(torch.zeros(100_000, 3, 1, 1), found)[:, :, 0, 0].double()
    unit = moments(Split(inputs, torch.zeros(40))).covariance / 255**2
    torch.testing.assert_close(torch.cov(shift.T), 0.01 * unit @ unit, rtol=0.03, atol=1e-6)


def test_training_warms_up_until_its_training_error_is_low_enough_and_remembers_that_it_is_warm(tmp_path):
    part, machine = small_images(), Machine(directory=tmp_path)
    recipe = Recipe(epochs=2, lr=0.3, warmup=(0.0, 0.0), batch_size=10)
    assert fit(small_network(), part, recipe).history["lr"] == [0.0] * 2
    warm = replace(recipe, warmup=(1e-3, 101.0))
    fit(small_network(), part, warm, machine=machine)
    resumed = fit(small_network(), part, replace(warm, epochs=4), machine=machine)
    assert resumed.history["lr"] == pytest.approx([1e-3, 0.3, 0.3, 0.3])
    with pytest.raises(ValueError, match="warm-up"):
        fit(nn.Linear(1, 1), Split(torch.ones(4, 1), torch.ones(4, 1)), replace(recipe, loss="mse"))


def test_ten_crops_are_averaged_as_probabilities():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten())
    part = small_images(12, size=6)
    recipe = Recipe(epochs=1, lr=0.0)
    fitted = fit(nn.Sequential(nn.AdaptiveAvgPool2d(4), *network), part, recipe)
    crops = ten_crops(fitted.moments.normalize(part.inputs), 4)
    expected = torch.stack([fitted.network(crop).softmax(1) for crop in crops]).mean(0)
    torch.testing.assert_close(fitted.predict(part, crops=4).exp(), expected)
    fitted.network[1].weight.data *= 1e4  # all but one probability underflow
    assert math.isfinite(fitted.evaluate(part, crops=4)["loss"])


def test_networks_in_double_precision_stay_so():
    network = small_network().double()
    fit(network, small_images(), replace(PLAIN, epochs=1))
    assert network[0].weight.dtype == torch.float64


def test_a_progress_bar_shows_epochs_and_losses_where_it_is_wanted(capsys):
    fit(small_network(), small_images(), PLAIN, machine=Machine(progress=True))
    shown = "".join(capsys.readouterr())
    assert "epoch 6" in shown
    assert "train_loss" in shown
    fit(small_network(), small_images(), PLAIN)
    assert "".join(capsys.readouterr()) == ""


def test_a_full_disk_leaves_the_last_checkpoint_as_it_was(tmp_path, monkeypatch):
    train, machine = small_images(), Machine(directory=tmp_path)
    fit(small_network(), train, PLAIN, machine=machine)
    before = (tmp_path / "last.ckpt").read_bytes()

    def full(_checkpoint, file):
        file.write(before[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        fit(small_network(), train, replace(PLAIN, epochs=7, steps=(3,)), machine=machine)
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_targets_of_another_shape_than_the_outputs_are_refused_before_the_first_step():
    network, inputs = nn.Linear(3, 1), torch.randn(8, 3)
    before = network.weight.detach().clone()
    two, one = Split(inputs, torch.randn(8, 2)), Split(inputs, torch.randn(8))
    with pytest.raises(ValueError, match=r"outputs \(8, 1\) .* targets \(8, 2\)"):
        fit(network, two, Recipe(epochs=1, loss="mse"))
    with pytest.raises(ValueError, match=r"targets \(8, 2\) differ"):
        fit(network, one, Recipe(epochs=1, loss="mse"), two)
    assert network.weight.equal(before)
    with pytest.raises(ValueError, match=r"outputs \(8, 1\) .* targets \(8, 2\)"):
        fit(network, one, Recipe(epochs=1, loss="mse")).evaluate(two)


def _truncate(content):
    return content[: len(content) // 2]


def _flip_a_bit_of_a_weight(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        place = content.index(archive.read(largest)) + largest.file_size // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("damage", [_truncate, _flip_a_bit_of_a_weight, lambda _: b"half", lambda _: b""])
def test_a_damaged_checkpoint_is_set_aside_and_training_starts_anew(tmp_path, damage):
    train, machine, recipe = small_images(), Machine(directory=tmp_path), replace(PLAIN, epochs=2)
    whole = fit(small_network(), train, recipe, machine=machine)
    checkpoint = tmp_path / "last.ckpt"
    damaged = damage(checkpoint.read_bytes())
    checkpoint.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"last.ckpt is damaged .* last.ckpt.damaged"):
        again = fit(small_network(), train, recipe, machine=machine)
    assert same(whole.network, again.network)
    assert (tmp_path / "last.ckpt.damaged").read_bytes() == damaged
    assert same(whole.network, fit(small_network(seed=8), train, recipe, machine=machine).network)


def test_a_network_in_evaluation_mode_is_trained():
    network = small_network().eval()
    fit(network, small_images(), PLAIN)
    assert int(network[1].num_batches_tracked) == 24
    assert network.training


def test_modules_frozen_on_purpose_stay_frozen_and_generators_stay_as_they_were():
    network = small_network()
    network[1].eval()
    state = torch.get_rng_state()
    fit(network, small_images(), PLAIN, small_images(30, seed=2))
    assert int(network[1].num_batches_tracked) == 0
    assert network[4].training
    assert torch.equal(state, torch.get_rng_state())
