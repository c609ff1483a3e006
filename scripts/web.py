"""Build the web edition, and the book as EPUB, from the manuscripts, content/pages and content/web.

    make web        # build/web/index.html opens from the file, with no server and no network
    make epub       # build/inference-lab.epub
    python scripts/web.py --into build/web
    python scripts/web.py --epub build/inference-lab.epub

The folder is written whole or not at all, and replaces only one that this made. The same sources give the same bytes.
"""

import signal
import sys
from pathlib import Path

if __package__ in {None, ""}:  # run as a file: the packages start at the repository's root
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from examples.lab.script import Parser, command, progress_bar
from scripts.experiments import ROOT


def options():
    """The script's argument parser."""
    parser = Parser(prog="web.py", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "web", metavar="FOLDER", help="where the site is written")
    parser.add_argument("--epub", type=Path, default=None, metavar="FILE", help="write the book as EPUB there, and no site")
    return parser


@command
def main(argv=None):
    """Build the site, and say what it weighs."""
    args = options().parse_args(argv)
    from scripts.web_edition import epub, site
    from scripts.web_edition.sizes import report

    with progress_bar("page") as bar:
        if args.epub:
            epub.build(ROOT, args.epub, bar.update)
        else:
            site.build(ROOT, args.into, bar.update)
    if args.epub:
        print(f"the book is written to {args.epub}, {args.epub.stat().st_size / 1e3:,.0f} kB")
    else:
        print(f"{report(args.into)}\n\nThe site is built; open {args.into / 'index.html'}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a build that is told to stop takes its work folder along
    sys.exit(main())
