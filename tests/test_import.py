import subprocess
import sys

import pytest

EXTRAS = (
    "lightning",
    "joblib",
    "datasets",
    "sklearn",
    "scipy",
    "plotly",
    "jinja2",
    "typer",
    "rich",
    "safetensors",
)
ROOMS = ("nn", "models", "inspect", "convert")


@pytest.mark.parametrize("room", ROOMS)
def test_the_core_imports_torch_and_numpy_only(room):
    code = f"import sys, relucid.{room}; print([m for m in {EXTRAS} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
