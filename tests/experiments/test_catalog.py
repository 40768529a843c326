import pytest

from relucid.experiments import Study
from relucid.experiments._catalog import built_in, find, rooms, studies, tables
from relucid.experiments._ledger import ledger
from relucid.experiments._page import Archive

STUDY = """
from relucid.experiments import Column, Study
mine = Study('mine', '', print, {'a': {}}, {'e': Column('e')})
"""


def test_studies_are_those_of_the_packages_that_register_them():
    assert {"crelu", "gmp", "structure", "ours"} <= rooms().keys()
    assert [study.name for table in tables("gmp") for study in table.STUDIES] == [
        s.name for s in studies("gmp")
    ]
    assert all(isinstance(study, Study) and study.name == name for name, study in built_in().items())
    assert find("gmp/uci") is built_in()["gmp/uci"]


def test_a_study_in_a_file_may_import_the_files_beside_it(tmp_path):
    (tmp_path / "beside_it.py").write_text("NAME = 'beside'\n")
    (tmp_path / "one.py").write_text(f"from beside_it import NAME\n{STUDY}")
    assert find(str(tmp_path / "one.py")).name == "mine"


@pytest.mark.parametrize(
    "text, name, message",
    [
        ("", "one.py", "has no study: assign a relucid.experiments.Study"),
        (
            STUDY + STUDY.replace("mine", "other"),
            "one.py",
            "has several studies; name one: .*one.py:mine, .*:other",
        ),
        (STUDY, "one.py:min", "did you mean 'mine'"),
        (STUDY, "two.py", "there is no file"),
        (STUDY, "gmp/ucy", "did you mean 'gmp/uci'.*: `relucid list` shows all of them"),
    ],
)
def test_what_is_no_study_is_refused(tmp_path, monkeypatch, text, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        find(name)


def test_the_largest_complete_scale_decides_and_never_a_smoke_test(filled):
    from relucid.experiments import Claim, Column, Scale, lower

    scales = {name: Scale({"scale": name}) for name in ("smoke", "small", "cpu", "full")}
    claim = Claim("Table 1", "", lower("new", "old", "error"))
    study = Study(
        "s", "", print, {"old": {"x": 2}, "new": {"x": 1}}, {"error": Column("error")}, scales, claims=[claim]
    )

    def records(scale, missing=False):
        def outcome(at):
            return (
                None
                if missing and at["seed"] == 2 and at["x"] == 2
                else {"error": at["x"] + 0.1 * at["seed"] ** at["x"]}
            )

        return filled(study, outcome, scale).records

    whole = {scale: records(scale) for scale in scales}

    def judged(*parts):
        (entry,) = ledger([study], Archive({key: record for part in parts for key, record in part.items()}))
        return entry.scale

    assert judged(*whole.values()) == "full"
    assert judged(whole["small"], whole["cpu"]) == "cpu"
    assert judged(whole["small"], records("full", missing=True)) == "small"
    assert judged(whole["smoke"]) == ""
