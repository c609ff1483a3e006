"""What a built site weighs, by page and by kind."""

from examples.lab.script import table

MODEL = ("weights.js", "tokenizer.js", "bpe.js", "gpt2.js", "sampling.js")  # of assets/try: the model itself
KINDS = {".svg": "pictures", ".css": "style", ".js": "scripts"}


def weigh(folder):
    """({page: bytes}, {kind: bytes}) of a site; the kinds are pages, pictures, style, scripts, search index and model."""
    pages, kinds = {}, dict.fromkeys(("pages", "pictures", "style", "scripts", "search index", "model"), 0)
    for path in sorted(path for path in folder.rglob("*") if path.suffix):
        size = path.stat().st_size
        if path.suffix == ".html":
            pages[path.name] = size
            kinds["pages"] += size
        elif path.parent.name == "try" and path.name in MODEL:
            kinds["model"] += size
        elif path.suffix in KINDS:
            kinds["search index" if path.name == "search.js" else KINDS[path.suffix]] += size
    return pages, kinds


def without_model(kinds):
    """The bytes of all pages and what they load as they open: without the model, and the index that the first search loads."""
    return sum(size for kind, size in kinds.items() if kind not in ("model", "search index"))


def report(folder):
    """The sizes as a table, and what they come to."""
    pages, kinds = weigh(folder)
    rows = [[name, f"{size / 1e3:,.1f}"] for name, size in [*pages.items(), *kinds.items()]]
    rest, index, model = (size / 1e6 for size in (without_model(kinds), kinds["search index"], kinds["model"]))
    said = f"All pages with what they load: {rest:.2f} MB. The first search loads {index:.2f} MB more, Try it {model:.1f} MB."
    return f"{table(['', 'kB'], rows)}\n\n{said}"
