import json

from relucid.data import directory, present


def test_list_looks_for_data_where_the_loaders_do(relucid, tmp_path, monkeypatch):
    monkeypatch.setenv("RELUCID_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    shown = relucid("list")[1]
    assert str(directory()) in shown.replace("\n", "")
    found, missing = (" ".join(part.split()) for part in shown.partition("present:")[2].split("missing:"))
    assert found == ", ".join(name for name, there in present().items() if there)
    assert "cifar10" in found
    assert missing.startswith(", ".join(name for name, there in present().items() if not there))


def test_list_prints_json_for_programs(relucid):
    out = json.loads(relucid("list", "--json")[1])
    assert "resnet56" in out["models"]
    assert out["data"]["digits"] is True
    lines = relucid("list", "--models")[1].splitlines()
    assert lines == out["models"] == json.loads(relucid("list", "--models", "--json")[1])


def test_the_list_begins_with_data_and_models_and_the_study_to_begin_with(relucid):
    lines = relucid("list")[1].splitlines()
    assert lines[0] == "Data sets"
    studies = lines.index("Studies, for relucid run; begin with quickstart")
    assert lines[studies + 1].startswith("  quickstart")
