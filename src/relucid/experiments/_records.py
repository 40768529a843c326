"""Records as JSON Lines: one file per runner, one line per run, nothing derived. Lines are added, never changed."""

import base64
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relucid.experiments._study import Run

Record = Mapping[str, Any]
"""What a run left: its key, runner, configuration, state, metrics, history and environment."""
USUAL = "32-true"  # of a run that trains nothing on a machine, and of every record that names no precision
STATES = ("finished", "diverged", "failed")
FIELDS = (
    "key", "runner", "version", "config", "state", "metrics", "history", "arrays", "error", "environment", "started",
    "seconds",
)  # fmt: skip
SMALL = 2**18  # characters of a packed array that goes into a file; larger ones stay in the store
VOTED = 2**14  # the same for outputs that a vote is made of, whose error is a record of its own


def read(directory: Path | str) -> dict[str, Record]:
    """The records of every `.jsonl` file in a directory, by key."""
    paths = sorted(Path(directory).glob("*.jsonl"))
    return {record["key"]: record for path in paths for record in read_lines(path)}


def read_lines(path: Path) -> Iterator[Record]:
    """The records of a file: JSON Lines, or the JSON of earlier releases, which has a list of runs."""
    try:
        text = path.read_text(encoding="utf-8")
        whole = json.loads(text) if path.suffix == ".json" else {}
        lines: Iterable[Any] = whole["runs"] if whole else map(json.loads, text.splitlines())
        for number, line in enumerate(lines, start=1):
            yield unversioned(checked(line, f"{path}, run {number},"))
        for vote in whole.get("votes", []):
            yield checked(vote_record(vote["runs"], vote["error"], ""), f"{path}, a vote,")
    except (AttributeError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} has no records ({error}): it must be a file that `relucid show` has written"
        ) from error


def unversioned(record: Record) -> Record:
    """A record; of a plain function, whose version was a digest of its file in earlier releases, with version 1."""
    if not str(record["version"]).startswith("source "):
        return {"key": Run(record["runner"], record["config"], record["version"]).key, **record}
    return {**record, "version": 1, "key": Run(record["runner"], record["config"]).key}


def vote_record(keys: Sequence[str], error: float, started: str) -> Record:
    """The error of several runs' vote, as a run of its own."""
    run = Run("vote", {"of": sorted(keys)})
    return {
        **run.begun(),
        "state": "finished",
        "metrics": {"error": error},
        "started": started,
        "seconds": 0.0,
    }


def checked(record: Any, where: str) -> Record:
    """A record as it is; refuse one that cannot be right."""
    if (
        not isinstance(record, Mapping)
        or not {"key", "runner", "config", "version", "state", "metrics"} <= record.keys()
    ):
        raise ValueError(f"{where} is no record of a run")
    if Run(record["runner"], record["config"], record["version"]).key != record["key"]:
        raise ValueError(f"{where} has another key than its configuration gives")
    if record["state"] not in STATES:
        raise ValueError(f"{where} is {record['state']!r}; it must be {', '.join(STATES)}")
    for name, value in record["metrics"].items():
        numbers(name, value)
    return record


def numbers(name: str, value: Any) -> float | list[float]:
    """A metric as a finite number or a list of them.

    >>> numbers("error", (1, 2))
    [1.0, 2.0]
    """
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {name!r} is {value!r}; it must be a number or a list of numbers") from error
    if array.ndim > 1 or not np.isfinite(array).all():
        raise ValueError(f"metric {name!r} is {value!r}; it must be a finite number or a list of them")
    found: float | list[float] = array.tolist()
    return found


def arithmetic(record: Mapping[str, Any]) -> str:
    """In which precision a record's run was trained, and whether it was compiled: only equals are compared.

    >>> arithmetic({}), arithmetic({"environment": {"precision": ["bf16-mixed"], "compiled": True}})
    ('32-true', 'bf16-mixed, compiled')
    """
    facts = record.get("environment", {})
    return ", ".join([*facts.get("precision", [USUAL]), *(["compiled"] if facts.get("compiled") else [])])


def append(records: Iterable[Record], directory: Path) -> int:
    """Append the records that are not there to the files of their runners; return how many were added."""
    if not directory.is_dir():
        raise ValueError(f"there is no directory {directory}")
    known, added = {record["key"] for path in directory.glob("*.jsonl") for record in read_lines(path)}, 0
    for record in sorted(records, key=lambda record: (record["started"], record["key"])):
        if record["key"] not in known and record["state"] != "failed":
            name = record["runner"].replace("/", "-").replace(":", "-")
            with (directory / f"{name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line(record) + "\n")
            added += 1
    return added


def line(record: Record) -> str:
    """A record as one line, without empty fields and large arrays."""
    arrays = record.get("arrays", {})
    limit = VOTED if arrays.keys() >= {"outputs", "targets"} else SMALL
    small = {name: text for name, text in arrays.items() if len(text) <= limit}
    written = {**record, "arrays": small}
    kept = {name: written[name] for name in FIELDS if written.get(name) not in (None, {}, [])}
    return json.dumps({**kept, "metrics": record["metrics"]}, separators=(",", ":"), ensure_ascii=False)


def arrays_of(record: Record) -> dict[str, np.ndarray]:
    """The arrays that a run left, unpacked."""
    return {name: unpacked(text) for name, text in record.get("arrays", {}).items()}


def packed(array: np.ndarray) -> str:
    """An array as text: a compressed archive in base64."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, array=array)
    return base64.b64encode(buffer.getvalue()).decode()


def unpacked(text: str) -> np.ndarray:
    """The array that `packed` wrote; objects, which could run code, are refused.

    >>> unpacked(packed(np.arange(3.0))).tolist()
    [0.0, 1.0, 2.0]
    """
    try:
        with np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False) as archive:
            array: np.ndarray = archive["array"]
            return array
    except Exception as error:  # a damaged archive may fail in any way
        raise ValueError(f"an array is damaged, or no array of numbers ({error})") from error
