"""A study whose code has changed never mixes old numbers with new ones."""

import linecache

import pytest

from relucid.papers import find
from relucid.studies import ChangedError, Column, Runner, Store, Study, run, table
from relucid.studies.runner import version_of

FILE = """
from relucid.studies import Column, Study

FACTOR = 1
ROWS = {"a": {"x": 1}, "b": {"x": 2}}

def scaled(x):
    return FACTOR * x

def drawn(table, store):
    return ["fine"]

def run(config):
    '''What a run does.'''
    return {"value": scaled(config["x"])}

study = Study("s", "", run, rows=ROWS, columns={"value": Column("value")}, repeat={"seed": range(2)}, figures=drawn)
"""


@pytest.fixture
def load(tmp_path):
    """A function that writes the study's file, with something replaced in it, and loads it."""

    def load(old="", new=""):
        assert old in FILE
        (tmp_path / "changing.py").write_text(FILE.replace(old, new, 1) if old else FILE)
        return find(str(tmp_path / "changing.py"))

    return load


def values(study, store):
    return {row: cell.values for (row, _), cell in table(study, store=store).cells.items()}


@pytest.mark.parametrize(
    "old, new",
    [("FACTOR * x", "FACTOR * x + 1"), ("FACTOR = 1", "FACTOR = 3"), ("def scaled", "# scaled\ndef scaled")],
)
def test_the_source_file_of_a_function_is_its_version(load, old, new):
    assert load().runner.version == load().runner.version != load(old, new).runner.version


def test_two_functions_in_one_file_have_two_versions():
    def first(config):
        return {"value": 1}

    def second(config):
        return {"value": 2}

    assert version_of(first) != version_of(second)


def test_in_a_notebook_the_cell_stands_for_the_file():
    def version(text):
        names, cell = {}, "<ipython-input-1>"
        linecache.cache[cell] = (len(text), None, text.splitlines(keepends=True), cell)  # as IPython does
        exec(compile(text, cell, "exec"), names)
        return version_of(names["run"])

    text = "def run(config):\n    return {'v': config['x']}\n"
    assert version(text) == version(text) != version(text.replace("'v'", "'w'"))


def test_code_without_any_source_goes_by_what_it_compiles_to():
    def version(text):
        names = {}
        exec(text, names)
        return version_of(names["run"])

    assert version("run = lambda config: 1") == version("run = lambda config: 1")
    assert version("run = lambda config: 1") != version("run = lambda config: 2")


def test_the_releases_of_relucid_and_torch_are_part_of_a_version_but_not_their_repairs(load, monkeypatch):
    first = load().runner.version
    monkeypatch.setattr("torch.__version__", "2.13.7+cu128")
    assert load().runner.version == first
    monkeypatch.setattr("torch.__version__", "2.14.0")
    assert load().runner.version != first
    assert "torch 2.14" in load().runner.version


def test_values_that_a_function_has_taken_from_around_it_are_part_of_its_version():
    def factory(factor):
        return lambda config: {"value": factor * config["x"]}

    assert version_of(factory(1)) == version_of(factory(1)) != version_of(factory(2))


def test_an_edited_study_is_refused_until_the_user_decides_about_its_runs(load, tmp_path):
    store = tmp_path / "runs"
    run(load(), store=store, jobs=1)
    edited = load("FACTOR = 1", "FACTOR = 10")
    with pytest.raises(ChangedError, match="changing:run has changed since 4 runs were made"):
        run(edited, store=store, jobs=1)
    assert values(edited, store) == {"a": (), "b": ()}
    assert values(load(), store) == {"a": (1, 1), "b": (2, 2)}


def test_runs_that_are_run_anew_are_not_mixed_with_the_old_ones_which_stay(load, tmp_path):
    store = tmp_path / "runs"
    run(load(), store=store, jobs=1)
    edited = load("FACTOR = 1", "FACTOR = 10")
    run(edited, store=store, jobs=1, seeds=1, changed="rerun")
    assert values(edited, store) == {"a": (10,), "b": (20,)}
    with pytest.raises(ChangedError, match="since 2 runs were made"):
        run(edited, store=store, jobs=1)
    run(edited, store=store, jobs=1, changed="rerun")
    assert values(edited, store) == {"a": (10, 10), "b": (20, 20)}
    assert values(load(), store) == {"a": (1, 1), "b": (2, 2)}
    run(edited, store=store, jobs=1)  # there is nothing left to ask about


def test_runs_that_are_kept_count_and_say_so(load, tmp_path):
    store = tmp_path / "runs"
    run(load(), store=store, jobs=1)
    renamed = load("def scaled(x):\n    return FACTOR * x", "def scaled(y):\n    return FACTOR * y")
    run(renamed, store=store, jobs=1, changed="keep")
    assert values(renamed, store) == {"a": (1, 1), "b": (2, 2)}
    kept = {record["environment"]["kept"] for record in table(renamed, store=store).runs}
    assert kept == {load().runner.version}
    with Store(store) as opened:
        assert opened.count() == 8


def test_a_store_from_before_sources_were_recorded_is_asked_about_too(load, tmp_path):
    store = tmp_path / "runs"
    old = Study(
        "s", "", Runner("changing:run", load().run, 1), load().rows, load().columns, repeat=load().repeat
    )
    run(old, store=store, jobs=1)
    with pytest.raises(ChangedError, match="since 4 runs were made"):
        run(load(), store=store, jobs=1)


def test_a_runner_with_a_higher_version_is_run_anew_without_a_question(tmp_path):
    def study(version):
        runner = Runner("lab/one", lambda config: {"value": version}, version)
        return Study("s", "", runner, rows={"a": {}}, columns={"value": Column("value")}, repeat={})

    for version in (1, 2):
        run(study(version), store=tmp_path, jobs=1)
        assert values(study(version), tmp_path) == {"a": (version,)}


def test_failed_runs_of_old_code_are_no_reason_to_ask(load, tmp_path):
    broken = load("return {", "raise RuntimeError\n    return {")
    run(broken, store=tmp_path / "runs", jobs=1)
    run(load(), store=tmp_path / "runs", jobs=1)
    assert values(load(), tmp_path / "runs") == {"a": (1, 1), "b": (2, 2)}


def test_changed_must_be_one_of_three_values(load, tmp_path):
    with pytest.raises(ValueError, match="refuse, keep, rerun"):
        run(load(), store=tmp_path / "runs", jobs=1, changed="yes")
