import shutil

import pytest


@pytest.fixture(scope="session")
def chromium():
    """A chromium without a window, and without a network."""
    reason = "needs selenium, chromium and its driver: make browser installs them where it can"
    webdriver = pytest.importorskip("selenium.webdriver", reason=reason)
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Containers have no sandbox and a small /dev/shm.
    for word in (
        "headless=new",
        "no-sandbox",
        "disable-dev-shm-usage",
        "host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def browser(chromium):
    """The same; the test fails if anything was complained of on its console."""
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.get("about:blank")
    chromium.get_log("browser")
    yield chromium
    assert chromium.get_log("browser") == []
