import io
import runpy
from dataclasses import replace

import cloudpickle
import pytest
import torch
from torch import nn

import relucid
from relucid._improve._handover import FILES
from relucid._improve._improvement import DEAD, GIVEN, SCRATCH, TRAINED
from relucid._improve._page import improvement_page
from relucid._improve._project import UNFAIR, project
from relucid._improve._task import RECIPE, task
from relucid.experiments import Results, Store

pytestmark = pytest.mark.filterwarnings("ignore:With 2 seeds")
QUICK = replace(RECIPE, epochs=1)
COLUMN = "test error %"


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


def test_suggested_conversions_are_tried_beside_the_given_network_and_the_controls(found):
    scratch = f"CReLU {SCRATCH}"
    assert list(found.results.study.rows) == [GIVEN, TRAINED, "CReLU", DEAD, SCRATCH, scratch]
    size = {row: found.mean(row, "parameters") for row in found.results.study.rows}
    assert size[GIVEN] == size[TRAINED] == size[DEAD] == size[SCRATCH] == 51
    assert size["CReLU"] == size[scratch] == 69


def test_the_users_network_is_left_as_it_is(tmp_path):
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    relucid.improve(net, known_and_new(), tries=["crelu"], recipe=QUICK, seeds=2, store=tmp_path, jobs=1)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_finished_runs_are_not_done_again(found, store):
    ran = []
    again = relucid.improve(
        network, known_and_new(), recipe=QUICK, seeds=2, store=store, jobs=1, name="net",
        report=lambda run, outcome: ran.append(outcome),
    )  # fmt: skip
    assert set(ran) == {None}
    assert again.headline() == found.headline()


def test_results_of_other_weights_data_or_functions_never_mix(found, store):
    altered = network()
    altered[2].bias.data[0] += 1
    same = task(network, known_and_new(), recipe=QUICK)
    assert project(same, seeds=2, store=store).missing() == []
    for changed in (
        task(altered, known_and_new(), recipe=QUICK),
        task(network, known_and_new(99), recipe=QUICK),
        task(network, classes(125), recipe=QUICK),
        task(network, known_and_new(), recipe=QUICK, metric="loss"),
        task(network, known_and_new(), recipe=QUICK, metric=lambda net, data: 1.0),
        task(network, known_and_new(), train=lambda net, data, seed: net),
    ):
        other = project(changed, seeds=2, store=store)
        assert len(other.missing()) == len(other.runs)


def judged(found, errors):
    """The improvement with other test errors, a list of seeds for each row."""
    study = replace(found.project.study, repeat={"seed": range(max(map(len, errors.values())))})
    records = {}
    for planned in study.plan():
        run, values = planned.run, errors.get(planned.row, [])
        if run.config["seed"] < len(values):
            metrics = {"error %": values[run.config["seed"]], "parameters": 51.0}
            about = {"key": run.key, "runner": run.runner, "version": run.version, "config": run.config}
            records[run.key] = {
                **about,
                "state": "finished",
                "metrics": metrics,
                "seconds": 0.0,
                "started": "",
            }
    project = replace(found.project, study=study)
    return replace(found, project=project, results=Results(study, study.default_scale, records))


TRAINED_ON = {GIVEN: [9.5], TRAINED: [9.0, 9.2, 9.1]}
WORSE = {DEAD: [9.3, 9.1, 9.4], SCRATCH: [19.3, 18.9, 19.9], f"CReLU {SCRATCH}": [18.8, 19.4, 19.1]}


CRELU = {"CReLU": [4.0, 4.1, 4.3]}


def alike(errors, **crelu):
    """The same errors in all rows but CReLU's and the first of them in the network as it was given."""
    return dict.fromkeys((TRAINED, "CReLU", *WORSE), errors) | crelu | {GIVEN: errors[:1]}


# The errors of rows besides the usual ones, the row that is returned, and the first and last words of the conclusion.
OUTCOMES = {
    "the best of what is better beyond chance": (
        CRELU, "CReLU", "Best: CReLU, 4.97 lower than training alone, 98.8% interval 4.19 to 5.75."
    ),
    "with a control that does as well": (
        {**CRELU, DEAD: [3.0, 9.0, 0.1]}, "CReLU",
        "Best: CReLU, ... But dead units redrawn (4.03%) does not differ significantly from it.",
    ),
    "a control that is best": (
        {**CRELU, DEAD: [3.0, 3.1, 3.2]}, DEAD,
        "Best: dead units redrawn, 6.00 lower than training alone, 98.8% interval ... to ....",
    ),
    "further training, where chance explains the rest": (
        {GIVEN: [15.0], "CReLU": [9.0, 9.1, 9.3]}, TRAINED,
        "Further training helps, nothing else does; the best of them, CReLU, is ....",
    ),
    # as exact as a number, the one result of the given network would be 0.40 higher, 0.15 to 0.65
    "one result of the given network is as uncertain as that of one training": (
        {"CReLU": [9.0, 9.1, 9.3]}, GIVEN, "Nothing helps here; the best of them, CReLU, is ...."
    ),
    "until it is far enough": (
        {GIVEN: [9.7], "CReLU": [9.0, 9.1, 9.3]}, TRAINED, "Further training helps, nothing else does; ...."
    ),
    "the network as it was given, where nothing helps": (
        {GIVEN: [8.5], "CReLU": [8.9, 9.3, 9.0]}, GIVEN, "Nothing helps here; the best of them, CReLU, is ...."
    ),
    "better than training, not than the network itself": ({GIVEN: [2.0], **CRELU}, GIVEN, "Nothing helps here...."),
    "no result of one row": (
        {GIVEN: [8.5], "CReLU": []}, GIVEN, "Nothing helps here, but 1 of 4 alternatives have no result."
    ),
    "the same everywhere": (
        alike([9.0, 9.0, 9.0]), GIVEN, "Nothing helps here."
    ),
    "equal differences in few seeds are no evidence": (
        alike([9.0, 9.5], CReLU=[8.0, 8.5]), GIVEN,
        "Nothing helps here, but these few seeds could not have shown a difference: use more.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("errors, row, words", OUTCOMES.values(), ids=OUTCOMES)
def test_what_is_returned_follows_from_the_errors(found, errors, row, words):
    better = judged(found, {**TRAINED_ON, **WORSE, **errors})
    assert (better.row, better.better) == (row, row != GIVEN)
    first, _, last = words.partition("...")
    assert better.conclusion().startswith(first)
    assert better.conclusion().endswith(last.rpartition("...")[2])
    assert ("But" in better.conclusion()) == ("But" in words)


def test_every_row_has_a_sentence(found):
    lines = judged(found, {**TRAINED_ON, **WORSE, GIVEN: [15.0], "CReLU": []}).lines()
    assert lines[0] == "Your network: test error 15.00%."
    assert lines[1] == "Trained for 1 more epoch: 9.10% (5.90 lower, 95% interval 5.40 to 6.40)."
    assert "With CReLU: no result, its training did not finish." in lines
    lines = judged(found, {**TRAINED_ON, **WORSE, **CRELU}).lines()
    assert "With CReLU: 4.13% (4.97 lower, 98.8% interval 4.19 to 5.75)." in lines
    assert lines[-1].startswith("The intervals are at 98.8%, so that all of them are right at once")
    same = judged(found, alike([9.0, 9.5], CReLU=[8.0, 8.5])).lines()
    assert "With CReLU: 8.25% (1.00 lower in every seed)." in same
    assert "With dead units redrawn: 9.25% (the same in every seed)." in same


def test_the_words_are_plain(found):
    text = str(found) + found._repr_html_()
    for word in ("claim", "reproduced", "contradicted", "verdict", "816", "unchanged", "Holm"):
        assert word not in text


def test_the_page_explains_the_level_and_states_the_conclusion_once(found):
    several = judged(found, {**TRAINED_ON, **WORSE, "CReLU": [4.0, 4.1, 4.3]})
    page = improvement_page(several, load=[], notes=[], command="")
    assert [page.count(line) for line in several.lines()] == [1] * len(several.lines())


def test_the_network_of_the_first_seed_is_kept_and_not_trained_again(found, store, monkeypatch):
    monkeypatch.setattr("relucid._improve._improvement.Improvement.row", "CReLU")
    monkeypatch.setattr("relucid._improve._task.Task.trained", None)
    network = found.project.concluded(found.results).network
    test = found.project.task.split(0)[1]
    record = next(each for each in found.results.behind("CReLU", COLUMN) if each["config"]["seed"] == 0)
    inputs, targets = test.batch(torch.arange(len(test)))
    wrong = (network(inputs).argmax(1) != targets).double().mean().item()
    assert record["metrics"]["error %"] == pytest.approx(100 * wrong)
    assert network[2].in_features == 12


def test_only_networks_that_may_be_returned_take_room_in_the_store(found, store):
    with Store(store) as results:
        runs = [record for record in results.values() if record["config"]["start"]]
    assert {(record["runner"], record["config"]["seed"]) for record in runs} == {
        ("improve", 0),
        ("improve", 1),
    }
    first = {record["key"] for record in runs if record["config"]["seed"] == 0}
    assert {path.stem for path in (store / "networks").iterdir()} == first


def imbalanced(count=300):
    """One example in ten is of class 1."""
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    return inputs, (inputs[:, 0] > 1.3).long()


def own_training(net, data, seed):
    inputs, targets = data
    weights = torch.where(targets == 1, 9.0, 1.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(20):
        chosen = torch.multinomial(weights, 64, replacement=True)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs[chosen]), targets[chosen]).backward()
        optimizer.step()
    return net


def f1_and_recall(net, data):
    inputs, targets = data
    found = net(inputs).argmax(1)
    hits = ((found == 1) & (targets == 1)).sum()
    return {
        "F1": 2 * hits / ((found == 1).sum() + (targets == 1).sum()),
        "recall": hits / (targets == 1).sum(),
    }


def test_own_training_and_an_own_metric_decide(tmp_path):
    data = imbalanced(), imbalanced(100)
    found = relucid.improve(
        lambda: network(2), data, train=own_training, metric=f1_and_recall, higher=True, tries=["crelu"],
        seeds=3, store=tmp_path, jobs=1,
    )  # fmt: skip
    assert list(found.results.study.columns) == ["test F1", "test recall", "parameters"]
    assert found.row != GIVEN
    assert found.mean(found.row) > found.mean(GIVEN)
    score = f1_and_recall(found.network, data[1])["F1"].item()
    kept = next(
        each for each in found.results.behind(found.row, found.project.column) if each["config"]["seed"] == 0
    )
    assert kept["metrics"]["F1"] == pytest.approx(score, abs=1e-6)
    assert found.lines()[1].startswith("Trained further: ")


def test_progress_is_shown_on_a_terminal(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    relucid.improve(
        network(), known_and_new(), tries=["crelu"], recipe=QUICK, seeds=2, store=tmp_path, jobs=1
    )
    assert "Judged by: test error %" in shown.getvalue()
    assert "11 of 11 runs" in shown.getvalue()


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


def test_a_memorized_test_part_is_not_compared_with_a_network_from_scratch(tmp_path):
    net, inputs, labels = memorized()
    options = {"tries": ["crelu"], "recipe": QUICK, "seeds": 2, "store": tmp_path, "jobs": 1}
    with pytest.warns(UserWarning, match="if so, all results are too good"):
        found = relucid.improve(net, (inputs, labels), **options)
    assert found.mean(GIVEN) == 0  # of labels that nobody can foresee
    assert list(found.results.study.rows) == [GIVEN, TRAINED, "CReLU"]
    assert found.project.left_out == {f"Training {SCRATCH}": UNFAIR}
    assert "too good" in found.headline()
    new = torch.randn(40, 8), torch.randint(0, 2, (40,))
    fair = project(task(net, ((inputs, labels), new)), ["crelu"], seeds=2)
    assert list(fair.treatments) == [TRAINED, "CReLU", SCRATCH, f"CReLU {SCRATCH}"]
    assert (fair.left_out, fair.task.cautions) == ({}, [])


def test_a_conversion_that_is_impossible_is_left_out_and_named():
    whole = project(task(network(), classes(), recipe=QUICK), ["heavy-ball", "crelu"], seeds=2)
    assert "CReLU" in whole.study.rows
    assert "heavy ball" not in whole.study.rows
    assert "residual blocks" in whole.left_out["heavy ball"]


def test_everything_is_written_or_nothing(found, tmp_path):
    found.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)
    with pytest.raises(ValueError, match="exists"):
        found.save(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_code_of_a_network_belongs_to_the_identity_of_its_runs(tmp_path):
    def key(factor):
        (tmp_path / "net.py").write_text(
            "import torch\nfrom torch import nn\nclass Net(nn.Linear):\n"
            f"    def forward(self, x):\n        return super().forward({factor} * x)\n"
        )
        kind = runpy.run_path(str(tmp_path / "net.py"))["Net"]
        torch.manual_seed(0)
        return task(kind(4, 3), known_and_new(), recipe=QUICK).configuration()["code"]

    assert key(1) == key(1)
    assert key(1) != key(0)


def test_large_data_go_to_workers_through_one_file_that_they_share(tmp_path, monkeypatch):
    monkeypatch.setattr("relucid._improve._task.LARGE", 1000)
    whole = replace(task(network, known_and_new(), recipe=QUICK), store=tmp_path)
    sent = cloudpickle.dumps(whole)
    assert len(list((tmp_path / "data").iterdir())) == 1
    other = cloudpickle.loads(sent)
    assert len(sent) < 20_000
    for ours, theirs in zip(whole.split(0), other.split(0), strict=True):
        assert ours.targets.equal(theirs.targets)
        assert torch.equal(ours.inputs, theirs.inputs)
    assert other.configuration() == whole.configuration()
    split = replace(task(network, classes(), recipe=QUICK), store=tmp_path)
    rest, held = split.split(0)
    assert rest.arrays is held.arrays  # no copies
    assert sorted([*rest.indices.tolist(), *held.indices.tolist()]) == list(range(100))
