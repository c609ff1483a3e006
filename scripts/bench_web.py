"""The embedded model in a browser's page: `scripts/bench.py --part web`.

A headless Chromium opens a page of nothing but the model's scripts several times. Each time it counts from the start of the page
to the loaded model, then the first prediction, which runs before the browser has compiled anything, then one when it has, and
decoding with the cache.
"""

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from examples.lab.script import BadInput, table
from examples.lab.timing import median_after
from scripts.web_edition.model_files import TOKENIZER, WEIGHTS, write_model_files

SOURCES = Path(__file__).resolve().parents[1] / "content" / "web" / "try"
SCRIPTS = ("bpe.js", "gpt2.js", "sampling.js")
TOKENS, DECODED, WARM_UP = 64, 128, 3
MEASURE = """
const [tokens, decoded, warmUp] = arguments;
const seconds = (work) => { const start = performance.now(); work(); return (performance.now() - start) / 1000; };
const found = { opened: performance.now() / 1000 };  // counted from the start of the page
let model;
found.load = seconds(() => { model = lab.loadModel(book_model); });
const ids = Array.from({ length: tokens }, (_, i) => (37 * i) % model.config.vocab_size);
const predict = () => lab.argmax(lab.forward(model, ids, { last: true }));
const decode = () => Array.from(lab.generate(model, [0], decoded));
found.first = seconds(predict);
for (let i = 0; i < warmUp; i++) { predict(); decode(); }
found.warm = seconds(predict);
found.decode = seconds(decode);
return found;
"""


def model_page(folder: Path) -> Path:
    """A page of nothing but the model's scripts, written into `folder` with them; its sizes are those of `write_model_files`."""
    write_model_files(folder)
    for name in SCRIPTS:
        shutil.copyfile(SOURCES / name, folder / name)
    tags = "".join(f'<script src="{name}"></script>' for name in (TOKENIZER, WEIGHTS, *SCRIPTS))
    page = folder / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>model</title>{tags}\n', encoding="utf-8")
    return page


@contextmanager
def chromium():
    """A headless Chromium's driver. Raises BadInput where one of the three parts is missing."""
    try:
        from selenium import webdriver
    except ImportError:
        raise BadInput("Selenium is not installed; make web installs it") from None
    browser, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not (browser and driver):
        raise BadInput("no Chromium or no chromedriver was found; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    opened = webdriver.Chrome(options, webdriver.ChromeService(executable_path=driver))
    opened.set_script_timeout(300)
    try:
        yield opened
    finally:
        opened.quit()


def measure(runs, progress=lambda: None, browser=chromium):
    """Medians over `runs` openings of the page after a discarded one, the bytes of the weights' script, and the browser's name."""
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        page = model_page(Path(folder))
        rows = []
        for _ in range(1 + runs):
            driver.get(page.as_uri())
            rows.append(driver.execute_script(MEASURE, TOKENS, DECODED, WARM_UP))
            progress()
        version = driver.capabilities["browserVersion"]
        size = (Path(folder) / WEIGHTS).stat().st_size
    return {
        "bytes": size,
        "browser": f"Chromium {version}",
        **{f"{key}_s": median_after(row[key] for row in rows) for key in ("opened", "load", "first", "warm")},
        "decode_per_s": DECODED / median_after(row["decode"] for row in rows),
    }


def web_report(found, runs):
    """Text of what `measure` found, beside what is asked of it, or why it did not run."""
    if "not_here" in found:
        return f"The model in a page: not here, {found['not_here']}"
    per_s, ms = found["decode_per_s"], {key: f"{1e3 * found[f'{key}_s']:,.0f} ms" for key in ("opened", "load", "first", "warm")}
    rows = [
        ["weights.js", f"{found['bytes'] / 1e6:.2f} MB", ""],
        ["page opened, its scripts read", ms["opened"], ""],
        ["weights decoded", ms["load"], ""],
        [f"first prediction, {TOKENS} tokens", ms["first"], f"at most 1 s: {'yes' if found['first_s'] <= 1 else 'no'}"],
        ["the same when compiled", ms["warm"], ""],
        ["decoding with the cache", f"{per_s:,.0f} tokens/s", f"at least 50: {'yes' if per_s >= 50 else 'no'}"],
    ]
    head = f"The embedded model in a page, {found['browser']}, headless; medians of {runs} openings after a discarded one:"
    return f"{head}\n\n{table(['', 'measured', 'asked'], rows)}"
