"""One headless Chromium for all tests of a process, without a network, and the site that they look at, built once a run.

A test class asks for `the_browser()` in its setUpClass; where a browser, its driver or Selenium is missing it is skipped, and the
reason says what to install. LAB_SITE=build/web takes a site that is built already.
"""

import atexit
import fcntl
import functools
import importlib.util
import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from tests.support import start

OFF = ("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>")
QUIET = ("--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync", "--mute-audio")
PLACE = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
OWN = ("data:", "blob:", "about:")  # addresses that are in the page itself


def missing_modules(*names):
    """Those of the modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


@functools.cache
def _browser():
    """(driver, None), or (None, what is missing), so that the search for a browser is made once."""
    if missing_modules("selenium"):
        return None, "Selenium is not installed; make web installs it"
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver_path = shutil.which("chromedriver")
    if not (chromium and driver_path):
        return None, "no Chromium or no chromedriver was found; on Debian: apt-get install chromium chromium-driver"
    os.environ["SE_OFFLINE"] = "true"  # Selenium is given its driver, and must fetch none
    from selenium import webdriver

    profile = tempfile.mkdtemp(prefix="lab-browser-")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*PLACE, *QUIET, *OFF, f"--user-data-dir={profile}", "--window-size=1440,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=driver_path))
    except BaseException:
        shutil.rmtree(profile, ignore_errors=True)
        raise

    def close():
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)

    atexit.register(close)
    driver.set_script_timeout(300)
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    return driver, None


def the_browser():
    """The driver of this process's browser, set to 1,440 pixels, light, JavaScript on. Raises SkipTest where there is none."""
    driver, missing = _browser()
    if driver is None:
        raise unittest.SkipTest(missing)
    as_it_opens(driver)
    return driver


def as_it_opens(driver):
    """Undo what a test has set."""
    at_width(driver, 1440)
    theme(driver, "light")
    javascript(driver, True)


def at_width(driver, width, height=900):
    """Give the page a window of this size, in its own pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def theme(driver, name, reduced_motion=False):
    """What the reader's system asks for: light or dark, and less motion or not."""
    motion = "reduce" if reduced_motion else "no-preference"
    features = [{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": motion}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def javascript(driver, on):
    """Whether the pages opened from now on run their scripts; what a test asks by execute_script runs either way."""
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not on})


def open_page(driver, name):
    """Open a page of the site, "04-chapter.html" or with "#anchor"; what was logged before is forgotten."""
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    driver.get(f"{site().as_uri()}/{name}")


def problems(driver, folder=None):
    """What went wrong since a page was opened: a line for each message of the console and each request outside the site."""
    home = (folder or site()).as_uri() + "/"
    found = [f"console: {entry['message']}" for entry in driver.get_log("browser")]
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = message["params"]["request"]["url"]
            if not address.startswith((home, *OWN)):
                found.append(f"request: {address}")
        elif message["method"] == "Runtime.exceptionThrown":
            found.append(f"exception: {message['params']['exceptionDetails'].get('text')}")
    return found


@functools.cache
def _site():
    """(folder, None) or (None, why there is none). All processes of one run of the tests share the folder."""
    if "LAB_SITE" in os.environ:
        return Path(os.environ["LAB_SITE"]).resolve(), None
    absent = missing_modules("pypandoc", "quickjs", "scour")
    if absent:
        return None, f"{' and '.join(absent)} not installed; make web installs what the site is built with"
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    place = Path(tempfile.gettempdir()) / f"lab-web-{run}"
    place.mkdir(exist_ok=True)
    building, looking = ((place / name).open("w") for name in ("building", "looking"))
    fcntl.flock(looking, fcntl.LOCK_SH)  # held as long as this process looks at the site
    fcntl.flock(building, fcntl.LOCK_EX)  # the first process builds, the others wait here
    folder, failed = place / "web", place / "failed"
    if not folder.exists() and not failed.exists():
        built = start("scripts/web.py", "--into", folder)
        if built.returncode:
            failed.write_text(built.stderr, encoding="utf-8")
    fcntl.flock(building, fcntl.LOCK_UN)

    def leave():
        try:
            fcntl.flock(looking, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another still looks at it, and removes it
        shutil.rmtree(place, ignore_errors=True)

    atexit.register(leave)
    if failed.exists():
        raise AssertionError(f"the site could not be built: {failed.read_text(encoding='utf-8')[-2000:]}")
    return folder, None


def site():
    """The folder of the built site. Raises SkipTest where what it is built with is not installed."""
    folder, missing = _site()
    if folder is None:
        raise unittest.SkipTest(missing)
    return folder


def pages():
    """The names of the site's pages, index.html first."""
    names = sorted(path.name for path in site().glob("*.html"))
    return ["index.html", *(name for name in names if name != "index.html")]
