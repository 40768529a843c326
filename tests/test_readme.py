import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "code", BLOCKS, ids=[re.sub(r"\W+", "-", block.splitlines()[-1])[:40] for block in BLOCKS]
)
def test_every_example_in_the_readme_runs(code):
    exec(compile(code, "README.md", "exec"), {})
