"""What pages say of studies whose directions were fixed before they were run."""

from relucid.experiments import Results
from relucid.experiments._page import findings


def finished(results: Results) -> bool:
    """Whether every planned run has finished, those of rows that nobody has begun included."""
    states = {key: record["state"] for key, record in results.records.items()}
    return all(states.get(planned.run.key) == "finished" for planned in results.plan)


def failures(*studies: Results) -> list[str]:
    """What was predicted and did not come true, of the studies that have finished; first on their page."""
    return [
        f"{results.study.name}: {verdict}"
        for results in studies
        if finished(results)
        for finding in findings(results)
        for verdict in finding.verdicts
        if verdict.outcome != "confirmed"
    ]
