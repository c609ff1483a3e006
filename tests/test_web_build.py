"""The web edition as it is built: whole, valid, its links and pictures there, nothing fetched, the same bytes each time; and the
EPUB. No browser is needed. One build serves all tests, and a second one, of a copy, stands for another machine."""

import json
import re
import shutil
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock
from urllib.parse import unquote
from xml.etree import ElementTree

from examples.lab.script import BadInput
from scripts.markers import MARKER, pages
from tests.browser import missing_modules
from tests.support import ROOT, FolderCase, slow

PAGES = {
    *("index", "01-chapter", "02-chapter", "03-chapter", "04-chapter", "05-chapter", "10-chapter", "11-chapter", "14-chapter"),
    *("14-appendix", "forward-pass", "try-it", "answers", "terms", "evidence"),
}
FIGURES = 28
ALL, CHAPTER = 1_500_000, 300_000  # bytes that the pages, and one of a chapter, may weigh without the model
LOADS = {"src", "href", "srcset", "poster", "data", "action"}
ABSENT = missing_modules("pypandoc", "quickjs", "scour", "html5lib")
needs = unittest.skipIf(ABSENT, f"{' and '.join(ABSENT)} not installed; make web installs what the site is built with")


def parsed(path):
    """(tree of a page without namespaces, errors that the strict parser finds)."""
    import html5lib

    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    return parser.parse(path.read_text(encoding="utf-8")), parser.errors


def files(folder):
    """{path: bytes} of all files below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def shown_as(marker):
    """The text of the link that a marker becomes."""
    return "The record of this table" if marker["form"].startswith("table") else " ".join(marker["body"].split())


@needs
@slow
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from scripts.web_edition import site

        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory())) / "web"
        site.build(ROOT, cls.folder)
        found = {path.stem: parsed(path) for path in sorted(cls.folder.glob("*.html"))}
        cls.trees = {name: tree for name, (tree, _) in found.items()}
        cls.errors = {name: errors[:3] for name, (_, errors) in found.items() if errors}
        cls.ids = {name: [e.get("id") for e in tree.iter() if e.get("id")] for name, tree in cls.trees.items()}

    def test_all_pages_are_there(self):
        self.assertEqual(set(self.trees), PAGES)

    def test_valid(self):
        self.assertEqual(self.errors, {})

    def test_ids_are_unique(self):
        for name, ids in self.ids.items():
            self.assertEqual(len(ids), len(set(ids)), name)

    def test_links_anchors_pictures_and_scripts_are_there(self):
        for name, tree in self.trees.items():
            for element in tree.iter():
                for attribute in LOADS & set(element.attrib):
                    address = element.get(attribute)
                    if element.tag == "a" and address.startswith(("https://", "http://")):
                        continue  # a reference, which nothing loads
                    file, _, anchor = unquote(address).partition("#")
                    path = self.folder / file if file else self.folder / f"{name}.html"
                    self.assertTrue(path.is_file() and path.resolve().is_relative_to(self.folder.resolve()), f"{name}: {address}")
                    if anchor:
                        self.assertIn(anchor, self.ids[path.stem], f"{name}: {address}")

    def test_nothing_is_fetched_and_no_path_of_this_machine_stands_in_it(self):
        for name, data in files(self.folder).items():
            if name.endswith(("weights.js", "tokenizer.js")):
                continue
            text = data.decode("utf-8")
            self.assertNotIn(str(ROOT), text, name)
            self.assertIsNone(re.search(r"@import|url\((?!#)|\bfetch\(|XMLHttpRequest|new WebSocket", text), name)
            if name.endswith(".svg"):
                self.assertEqual(re.findall(r'\bhref="(?!#|data:)[^"]*"', text), [], name)

    def test_sizes(self):
        from scripts.web_edition.sizes import weigh, without_model

        pages, kinds = weigh(self.folder)
        self.assertLess(without_model(kinds), ALL, kinds)
        for name, size in pages.items():
            self.assertLess(size, CHAPTER, name)
        self.assertEqual(sum(kinds.values()), sum(len(data) for data in files(self.folder).values()))

    def test_every_figure_says_something_without_javascript(self):
        found = {}
        for tree in self.trees.values():
            for figure in tree.iter("figure"):
                if figure.get("data-figure"):
                    parts = {part.get("class") or part.tag: part for part in figure}
                    found[figure.get("data-figure")] = parts
        self.assertEqual(len(found), FIGURES)
        for id, parts in found.items():
            text = {name: " ".join("".join(part.itertext()).split()) for name, part in parts.items()}
            self.assertGreater(len(parts["drawing"]), 0, id)
            self.assertGreater(len(text["words"]), 20, id)
            self.assertRegex(text["figcaption"], r"^Figure \d+\. \S", id)
        numbers = {int(re.match(r"Figure (\d+)", "".join(parts["figcaption"].itertext()))[1]) for parts in found.values()}
        self.assertEqual(numbers, set(range(1, FIGURES + 1)))

    def test_numbers_lead_to_their_records(self):
        """Each to the record and the place in it that its marker names, at which the value is looked up."""
        manuscripts = {path.stem: path for path in pages(ROOT) if path.name != "README.md"}
        shown = 0
        for name, tree in self.trees.items():
            stores = [e for e in tree.iter("script") if e.get("id") == "records"]
            records = json.loads(stores[0].text) if stores else {}
            links = [e for e in tree.iter("a") if e.get("data-at")]
            texts = [" ".join("".join(e.itertext()).split()) for e in links]
            refs = [unquote(e.get("href")).partition("#")[2] for e in links]
            found = list(zip(refs, [e.get("data-at") for e in links], texts, strict=True))
            self.assertEqual(set(refs), set(records), name)
            marked = MARKER.finditer(manuscripts[name].read_text(encoding="utf-8")) if name in manuscripts else ()
            wanted = [(m["ref"], m["path"], shown_as(m)) for m in marked]
            self.assertEqual(sorted(found), sorted(wanted), name)
            for ref, record in records.items():
                self.assertTrue({"claim", "kind", "model", "limits"} <= record.keys(), ref)
            shown += len(links)
        self.assertGreater(shown, 100)

    def test_every_record_and_claim_is_on_the_page_of_the_evidence(self):
        from scripts.experiments import claims
        from scripts.markers import load_records

        wanted = set(load_records(ROOT)) | {claim.id for claim in claims(ROOT)}
        self.assertEqual(wanted - set(self.ids["evidence"]), set())

    def test_search_index(self):
        from scripts.web_edition.search import CLOSING

        text = (self.folder / "assets" / "search.js").read_text(encoding="utf-8")
        index = json.loads(text[text.index("{") : text.rindex("}") + 1])
        for page, anchor, *_ in index["sections"]:
            name = index["pages"][page][0]
            self.assertTrue(not anchor or anchor in self.ids[name], (name, anchor))

        def sections(word):
            at, found = 0, []
            for part in index["words"][word].split(","):
                at += int(part.rstrip("*"), 36)
                page, anchor, *_ = index["sections"][at]
                found.append((index["pages"][page][0], anchor))
            return found

        self.assertIn(("04-chapter", "what-the-mask-does"), sections("mask"))
        self.assertIn("04-chapter", {page for page, _ in sections("124439808")})
        softmax = sections("softmax")  # in the order of the index: the definition, the pages and chapters, what closes a chapter
        self.assertEqual(softmax[0][0], "terms")
        self.assertIn(("terms", "softmax"), softmax)
        self.assertIn(softmax[-1][1], CLOSING)
        self.assertLess(softmax.index(("forward-pass", "temperature")), softmax.index(("04-chapter", "what-it-costs")))
        self.assertEqual(list(index["words"]), sorted(index["words"]))

    def test_terms(self):
        terms = ["".join(e.itertext()).strip() for e in self.trees["terms"].iter("dt")]
        self.assertIn("Residual stream", terms)
        self.assertEqual(terms, sorted(terms, key=lambda term: re.sub(r"[^\w ]", "", term).casefold()))
        self.assertEqual(len(terms), len(set(terms)))
        self.assertLessEqual({"Softmax", "Attention", "Vocabulary", "Position", "Pair"}, set(terms))
        (both,) = [
            [part for part in list_ if part.tag in ("dt", "dd")][at + 1 : at + 3]
            for list_ in self.trees["terms"].iter("dl")
            for at, part in enumerate(list_)
            if part.tag == "dt" and "".join(part.itertext()).strip() == "Prefill"
        ]
        self.assertEqual([part.tag for part in both], ["dd", "dd"])
        for part, chapter in zip(both, (1, 10), strict=True):
            self.assertIn(f"Chapter {chapter}", "".join(part.itertext()))

    def test_two_builds_give_the_same_bytes(self):
        from scripts.web_edition import site

        again = self.folder.parent / "elsewhere" / "again"
        site.build(ROOT, again)
        first, second = files(self.folder), files(again)
        self.assertEqual(list(first), list(second))
        self.assertEqual([name for name in first if first[name] != second[name]], [])


@needs
class Faults(FolderCase):
    """A page with one fault: the build stops with one line that names file and line."""

    def setUp(self):
        super().setUp()
        for part in ("books/inference", "pages"):
            (self.folder / "content" / part).mkdir(parents=True)
        shutil.copytree(ROOT / "content" / "web", self.folder / "content" / "web")

    def problem(self, text):
        """What reading a page of that text says is wrong."""
        from scripts.web_edition.site import Edition

        (self.folder / "content" / "pages" / "try-it.md").write_text(f"---\ntitle: A page\n---\n\n# A page\n\n{text}\n")
        edition = Edition(self.folder)
        with self.assertRaises(BadInput) as caught:
            edition.read(edition.pages[0])
            edition.links.check()
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_a_link_that_leads_nowhere(self):
        self.assertIn("try-it.md:7: the link to gone.md leads nowhere", self.problem("See [this](gone.md)."))

    def test_an_anchor_that_is_not_there(self):
        self.assertIn("try-it.md:7: the link to #gone leads nowhere", self.problem("See [this](#gone)."))

    def test_a_figure_without_a_script(self):
        text = '<figure id="figure-gone" data-figure="gone"><figcaption>x</figcaption></figure>'
        self.assertIn("try-it.md:7: there is no script of the figure gone", self.problem(text))

    def test_a_figure_whose_id_is_another(self):
        text = '<figure id="figure-layers" data-figure="layer"><figcaption>x</figcaption></figure>'
        self.assertIn('try-it.md:7: <figure id="figure-layers" data-figure="layer"> is no figure', self.problem(text))

    def test_a_record_that_is_not_there(self):
        self.assertIn("try-it.md:7: there is no record ch04.gone", self.problem("It has <!--=ch04.gone total int-->1<!--/-->."))

    def test_half_of_a_marker(self):
        for text in ("It has <!--=ch04.counts total int-->1.", "It has 1<!--/-->.", "It has <!--const-->1."):
            self.assertIn("try-it.md:7: the marker <!--", self.problem(text))

    def test_a_diagram_that_nothing_draws(self):
        self.assertIn("try-it.md:7: a mermaid block", self.problem("```mermaid\nflowchart LR\n```"))

    def test_a_figure_that_fails(self):
        script = self.folder / "content" / "web" / "figures" / "99-bad.js"
        script.write_text('"use strict";\nbook.figure({ id: "bad", number: 99, controls: [], numbers: () => ({ a: nothing }) });\n')
        text = '<figure id="figure-bad" data-figure="bad"><figcaption>x</figcaption></figure>'
        self.assertIn("99-bad.js: figure bad cannot be drawn: ReferenceError", self.problem(text))

    def test_a_picture_that_nothing_draws(self):
        from scripts.web_edition import images
        from scripts.web_edition.site import Edition

        page = self.folder / "content" / "pages" / "try-it.md"
        page.write_text(
            "---\ntitle: A page\n---\n\n# A page\n\n![A picture that is not there](../../research/ch04/figures/gone.svg)\n"
        )
        edition = Edition(self.folder)
        edition.read(edition.pages[0])
        with self.assertRaisesRegex(BadInput, r"try-it.md:7: no experiment and no chapter's pictures draw gone.svg"):
            images.draw(self.folder, edition.pages, self.folder)


class Place(FolderCase):
    """Where the site goes: whole or not at all, and never over what something else made."""

    def test_a_folder_of_somebody_elses_stays(self):
        from scripts.web_edition.whole import whole_folder

        mine = self.folder / "mine"
        mine.mkdir()
        (mine / "notes.txt").write_text("mine")
        with self.assertRaisesRegex(BadInput, "make web did not make it"), whole_folder(mine):
            self.fail("it began all the same")
        self.assertEqual((mine / "notes.txt").read_text(), "mine")

    def test_an_error_leaves_the_old_site_and_nothing_beside_it(self):
        from scripts.web_edition.whole import whole_folder

        goal = self.folder / "web"
        with whole_folder(goal) as new:
            (new / "index.html").write_text("old")
        with self.assertRaises(KeyError), whole_folder(goal) as new:
            (new / "index.html").write_text("new")
            raise KeyError
        self.assertEqual((goal / "index.html").read_text(), "old")
        with whole_folder(goal) as new:
            (new / "index.html").write_text("new")
        self.assertEqual((goal / "index.html").read_text(), "new")
        self.assertEqual(list(self.folder.iterdir()), [goal])

    def test_bad_input_is_one_line(self):
        from scripts import web

        (self.folder / "web").mkdir()
        (self.folder / "web" / "notes.txt").write_text("mine")
        self.assertBad(web.main, ["--into", str(self.folder / "web")], "make web did not make it")
        self.assertBad(web.main, ["--epub", str(self.folder / "book.pdf")], "name the file so")
        self.assertBad(web.main, ["--nothing"], "--help")


@needs
@slow
class Epub(FolderCase):
    def test_the_book(self):
        from scripts.web_edition import epub, images

        path, drawn, draw = self.folder / "book.epub", {}, images.draw

        def once(root, pages, folder):  # the site's tests draw them twice, and that is enough
            drawn["sizes"] = drawn.get("sizes") or draw(root, pages, self.folder)
            shutil.copytree(self.folder / "images", Path(folder) / "images")
            return drawn["sizes"]

        self.enterContext(mock.patch.object(images, "draw", once))
        epub.build(ROOT, path)
        with zipfile.ZipFile(path) as book:
            names = book.namelist()
            first = book.infolist()[0]
            self.assertEqual((first.filename, first.compress_type), ("mimetype", zipfile.ZIP_STORED))
            self.assertEqual(book.read("mimetype"), b"application/epub+zip")
            parts = {name: book.read(name) for name in names}
        container = ElementTree.fromstring(parts["META-INF/container.xml"])
        (package,) = [e.get("full-path") for e in container.iter() if e.tag.endswith("}rootfile")]
        tree = ElementTree.fromstring(parts[package])
        base = Path(package).parent
        items = {e.get("id"): (base / e.get("href")).as_posix() for e in tree.iter() if e.tag.endswith("}item")}
        spine = [items[e.get("idref")] for e in tree.iter() if e.tag.endswith("}itemref")]
        self.assertEqual(set(items.values()) - set(names), set())
        self.assertGreaterEqual(len(spine), len(PAGES) - 2)  # all but Try it and the evidence
        pages = {name: ElementTree.fromstring(data) for name, data in parts.items() if name.endswith(".xhtml")}
        ids = {name: [e.get("id") for e in page.iter() if e.get("id")] for name, page in pages.items()}
        links = pictures = figures = 0
        for name in spine:
            self.assertEqual(len(ids[name]), len(set(ids[name])), name)
            for element in pages[name].iter():
                kind = element.tag.rpartition("}")[2]
                address = element.get("src") or (element.get("href") if kind == "a" else None)
                figures += kind == "figure" and bool(element.get("data-figure"))
                self.assertNotEqual(kind, "script")
                if not address or address.startswith("http"):
                    continue
                file, _, anchor = unquote(address).partition("#")
                target = _joined(name, file) if file else name
                self.assertIn(target, parts, f"{name}: {address}")
                if anchor:
                    self.assertIn(anchor, ids[target], f"{name}: {address}")
                links += kind == "a"
                pictures += kind == "img"
        self.assertEqual(figures, FIGURES)
        self.assertGreater(links, 100)
        self.assertGreater(pictures, 40)
        epub.build(ROOT, self.folder / "again.epub")
        self.assertEqual(path.read_bytes(), (self.folder / "again.epub").read_bytes())


def _joined(name, file):
    """A file beside another one in the book."""
    parts = list(Path(name).parent.parts)
    for part in Path(file).parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


if __name__ == "__main__":
    unittest.main()
