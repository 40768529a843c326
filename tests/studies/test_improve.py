from dataclasses import replace

import pytest
import torch
from torch import nn

import relucid
from relucid.data import Data, Split, from_arrays
from relucid.report.handover import FILES
from relucid.studies import Store
from relucid.studies import table as tabulate
from relucid.studies.compare import compare
from relucid.studies.improve import DEAD, SCRATCH, UNCHANGED, UNFAIR, _chosen, measured, project
from relucid.studies.subject import RECIPE, subject
from relucid.studies.table import Cell

QUICK = replace(RECIPE, epochs=1)


def network(outputs=3):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, outputs))
    net[0].bias.data[:2] = -100.0
    return net


def classes(count=100):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :3].argmax(1)


def known_and_new(count=100):
    """Examples to train on, and others to test on."""
    inputs, targets = classes(count + 25)
    return (inputs[:count], targets[:count]), (inputs[count:], targets[count:])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("improve")


@pytest.fixture(scope="module")
def found(store):
    return relucid.improve(network, known_and_new(), recipe=QUICK, seeds=2, store=store, jobs=1, name="net")


def test_what_the_findings_suggest_is_tried_beside_the_controls(found):
    assert list(found.table.study.rows) == [UNCHANGED, "CReLU", "geometric", DEAD, SCRATCH]
    size = {row: found.table.cells[row, "parameters"].mean for row in found.table.study.rows}
    assert size[UNCHANGED] == size["geometric"] == size[DEAD] == 51
    assert size["CReLU"] == size[SCRATCH] == 69


def test_conversion_moves_no_output(found):
    assert found.table.cells["CReLU", "moved 10⁻⁶"].mean < 1
    assert found.table.cells["geometric", "moved 10⁻⁶"].mean < 1


def test_the_network_that_is_handed_back_is_the_recorded_one_to_the_last_bit(found):
    assert found.exact
    record = next(each for each in found.table.behind(found.row) if each["config"]["seed"] == found.seed)
    assert found.metrics == record["metrics"]


def test_finished_runs_are_not_done_again(found, store):
    ran = []
    again = relucid.improve(
        network, known_and_new(), recipe=QUICK, seeds=2, store=store, jobs=1, name="net",
        report=lambda run, outcome: ran.append(outcome),
    )  # fmt: skip
    assert set(ran) == {None}
    assert again.headline() == found.headline()


def test_results_of_other_weights_or_data_never_mix(found, store):
    other = network()
    other[2].bias.data[0] += 1
    same = subject(network, known_and_new(), recipe=QUICK)
    assert tabulate(project(same, seeds=2).study, store=store).runs
    for changed in (
        subject(other, known_and_new(), recipe=QUICK),
        subject(network, known_and_new(99), recipe=QUICK),
        subject(network, classes(125), recipe=QUICK),
    ):
        assert tabulate(project(changed, seeds=2).study, store=store).runs == []


def judged(found, errors):
    """The table with other test errors."""
    cells = dict(found.table.cells)
    for row, values in errors.items():
        samples = {f"seed {seed}, 0": value for seed, value in enumerate(values)}
        for column in ("test error %", "held-out error %"):
            cells[row, column] = Cell(samples, len(values), {"finished": len(values)})
    return replace(found.table, cells=cells)


def test_the_best_of_what_is_better_beyond_chance_is_handed_back(found):
    errors = {UNCHANGED: [9.0, 9.2, 9.1], "CReLU": [4.0, 4.1, 4.3], "geometric": [5.0, 5.1, 5.3]}
    errors |= {DEAD: [3.0, 9.0, 14.0], SCRATCH: [8.8, 9.4, 9.1]}
    table = judged(found, errors)
    assert _chosen(table, "test error %") == "CReLU"
    said = replace(found, table=table, row="CReLU").headline()
    assert "a test error of 4.13%; unchanged and trained further, it has a test error of 9.10%" in said
    assert "in 3 of 3 seeds" in said


def test_where_chance_explains_everything_the_unchanged_network_is_handed_back(found):
    table = judged(
        found, {row: [9.0, 9.2, 8.8 + place / 10] for place, row in enumerate(found.table.study.rows)}
    )
    assert _chosen(table, "test error %") == UNCHANGED
    assert "Nothing that was tried" in replace(found, table=table, row=UNCHANGED).headline()


def test_values_are_judged_by_the_root_of_their_squared_error():
    inputs = torch.randn(60, 4)
    whole = project(subject(network(1), (inputs, inputs.sum(1)), recipe=QUICK), ["geometric"], seeds=2)
    assert whole.column == "test RMSE"
    assert whole.subject.recipe.loss == "mse"


class OneMore:
    """What `measured` asks of a trained network: errors as float32 gives them."""

    def __init__(self, wrong, of):
        self.error = float(torch.tensor(100 * wrong / of))

    def evaluate(self, examples):
        return {"error": self.error}


@pytest.mark.parametrize("count", [7, 360, 719, 10_000])
def test_one_example_more_is_the_same_difference_in_every_seed_and_no_proof(count):
    examples = from_arrays(torch.zeros(count, 1), torch.zeros(count, dtype=torch.int64))
    fewer, more = ([measured(OneMore(k, count), examples, "error") for k in (a, a + 3)] for a in (1, 2))
    assert all(a == 100 * k / count for a, k in zip(fewer, (1, 4), strict=True))
    assert compare(more, fewer, paired=True).p == 0.5


def test_every_seed_tests_with_other_examples_unless_the_data_have_their_own():
    inputs, targets = classes()
    split = subject(network, (inputs, targets), recipe=QUICK)
    rest, held, test = split.parts(1)
    assert (len(rest), len(held), len(test)) == (64, 16, 20)
    assert not torch.equal(test.inputs, split.parts(2)[2].inputs)
    together = torch.cat([rest.inputs, held.inputs, test.inputs])
    assert torch.equal(together.sort(0).values, inputs.sort(0).values)
    given = subject(network, Data(Split(inputs, targets), Split(inputs[:9], targets[:9])), recipe=QUICK)
    assert torch.equal(given.parts(1)[2].inputs, inputs[:9])
    assert "the same for all seeds" in project(given, ["crelu"], seeds=2).study.protocol


def memorized():
    """A network that has learned random labels by heart, and what it was trained on."""
    torch.manual_seed(0)
    inputs, labels = torch.randn(100, 8), torch.randint(0, 2, (100,))
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return net, inputs, labels


def test_what_a_network_knows_by_heart_proves_nothing_against_one_from_scratch(tmp_path):
    net, inputs, labels = memorized()
    options = {"tries": ["crelu"], "recipe": QUICK, "seeds": 2, "store": tmp_path, "jobs": 1}
    caution = "may be among those that the network was trained on: if so, all errors are too low"
    with pytest.warns(UserWarning, match=caution):
        found = relucid.improve(net, (inputs, labels), **options)
    assert found.table.cells[UNCHANGED, "test error %"].mean == 0  # of labels that nobody can foresee
    assert list(found.table.study.rows) == [UNCHANGED, "CReLU"]
    assert found.project.left_out == {SCRATCH: UNFAIR}
    assert caution in found.headline()
    assert SCRATCH in str(found)
    new = torch.randn(40, 8), torch.randint(0, 2, (40,))
    fair = project(subject(net, ((inputs, labels), new)), ["crelu"], seeds=2)
    assert (list(fair.starts), fair.left_out, fair.subject.caution) == ([UNCHANGED, "CReLU", SCRATCH], {}, "")


def test_an_improvement_prints_as_its_summary_and_shows_in_a_line(found):
    said = str(found).splitlines()
    assert said[0] == found.headline()
    assert [line.split()[0] for line in said[3:8]] == ["unchanged", "CReLU", "geometric", "dead", "as"]
    assert repr(found) == f"<Improvement of net: {found.row}; print it for the comparison>"


def test_a_difference_that_nothing_could_show_is_not_told(found):
    table = judged(found, {row: [9.0, 9.0, 9.0] for row in found.table.study.rows})
    said = replace(found, table=table, row=UNCHANGED).headline()
    assert said.endswith("which has a test error of 9.00%.")


def test_one_epoch_is_one_epoch():
    whole = subject(network, known_and_new(), recipe=QUICK)
    assert " 1 epoch, " in project(whole, ["crelu"], seeds=2).study.protocol
    two = replace(whole, recipe=replace(QUICK, epochs=2))
    assert " 2 epochs, " in project(two, ["crelu"], seeds=2).study.protocol


def own_loss(outputs, targets):
    return (outputs.flatten(1).sum(1) - targets.flatten(1).sum(1)).abs().mean()


def test_a_loss_of_ones_own_decides_by_itself_where_there_are_no_classes(store):
    inputs = torch.randn(60, 4)
    found = relucid.improve(
        network(2),
        ((inputs[:40], inputs[:40, :1]), (inputs[40:], inputs[40:, :1])),
        loss=own_loss,
        tries=["crelu"],
        recipe=QUICK,
        seeds=2,
        store=store,
        jobs=1,
    )
    assert found.project.column == "test loss"
    _, _, test = found.project.subject.parts(found.seed)
    loss = own_loss(found.network(test.inputs), test.targets)
    assert found.metrics["error"] == pytest.approx(loss.item(), rel=1e-5)


def test_a_network_that_cannot_be_converted_is_left_out_and_said_to_be():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network()

        def forward(self, x):
            return self.layers(x) if float(x.detach().sum()) < 1e9 else self.layers(-x)

    whole = project(subject(Branching(), classes(), recipe=QUICK), ["crelu"], seeds=2)
    assert "CReLU" not in whole.study.rows
    assert "Branching" in whole.left_out["CReLU"]


def test_everything_is_written_or_nothing(found, tmp_path):
    found.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    with pytest.raises(ValueError, match="exists"):
        found.save(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "model, data, words",
    [
        (lambda: network(2), classes(), "label 2 is out of range"),
        (network, (torch.randn(30, 5), torch.arange(30) % 3), r"does not take inputs of shape \(5,\)"),
        (lambda: nn.ReLU(), classes(), "no parameters"),
        (lambda: 3, classes(), "not a torch.nn.Module"),
        (lambda: nn.LSTM(4, 3), classes(), "returns a tuple"),
        (network, (torch.randn(30, 4), torch.randn(30)), "3 outputs per example, but there are 1 targets"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_the_door(model, data, words):
    with pytest.raises((ValueError, TypeError), match=words):
        subject(model, data)


def test_weights_that_are_not_finite_are_refused():
    broken = network()
    broken[2].weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"2.weight .* not finite"):
        subject(broken, classes())


def test_the_store_has_the_runs_under_one_name(found, store):
    results = Store(store)
    assert {run.runner for run in results.runs()} == {"improve"}
    results.close()
