import pytest

from relucid.papers import find
from relucid.studies import run, table

TWO = """
from relucid.studies import Column, Study
from beside import double

def run(config):
    return {"value": double(config["seed"])}

one = Study("one", "", run, rows={"a": {}}, columns={"value": Column("value")})
two = Study("two", "", run, rows={"b": {}}, columns={"value": Column("value")})
"""


def test_a_study_of_a_user_comes_from_a_file_with_what_lies_beside_it(tmp_path):
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    path = tmp_path / "mine.py"
    path.write_text(TWO)
    study = find(f"{path}:two")
    run(study, store=tmp_path / "runs", jobs=1)
    assert table(study, store=tmp_path / "runs").cells["b", "value"].values == (0, 2, 4)
    with pytest.raises(ValueError, match=r"mine.py:one, .*mine.py:two"):
        find(str(path))
    with pytest.raises(ValueError, match=r"'tow' .* 'two'"):
        find(f"{path}:tow")


def test_a_missing_file_or_study_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.py"):
        find("nowhere.py")
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"empty.py has no study"):
        find(str(tmp_path / "empty.py"))
    with pytest.raises(ValueError, match=r"gmp/uc'.*gmp/uci"):
        find("gmp/uc")


def test_dataclasses_with_annotations_as_text_can_be_defined_in_the_file(tmp_path):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom relucid.studies import *\n"
    text += "@dataclass\nclass Thing:\n    x: int\n"
    text += "study = Study('s', '', lambda config: {'x': Thing(3).x}, rows={'a': {}}, columns={'x': Column('x')})\n"
    (tmp_path / "file.py").write_text(text)
    study = find(str(tmp_path / "file.py"))
    run(study, store=tmp_path / "runs", jobs=1)
    assert table(study, store=tmp_path / "runs").cells["a", "x"].values == (3, 3, 3)
