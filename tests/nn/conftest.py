import pytest

from relucid.nn import kernels


@pytest.fixture(scope="module", params=["kernels", "torch"])
def by_kernels_and_by_torch(request):
    """Run each test twice: with the compiled kernels, where they are built, and with torch's operations alone."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(kernels, "_library", None)
        yield
