"""The site: every page read, its links, pictures, figures and records worked in, and written by the template."""

import re
import shutil
from pathlib import Path

from scripts.markers import load_records
from scripts.web_edition import figures, images, search, terms
from scripts.web_edition.code import listing
from scripts.web_edition.evidence import Evidence
from scripts.web_edition.links import Links
from scripts.web_edition.model_files import write_model_files
from scripts.web_edition.pandoc import changed, plain, raw, raw_block, read, words, write
from scripts.web_edition.source import manuscripts, markdown
from scripts.web_edition.whole import whole_folder

TRY = ("bpe", "gpt2", "sampling", "work", "views", "page", "generation")  # in this order, behind the toolkit and the tokenizer
SEMANTICS = re.compile(r"<semantics>(.*?)<annotation [^>]*>.*?</annotation></semantics>", re.S)
WHOLE = re.compile(r"(<pre.*?</pre>|<textarea.*?</textarea>|<script.*?</script>)", re.S)
GAP = re.compile(r">\n+<(?=/?(?:table|thead|tbody|tr|td|th|ul|ol|li|dl|dt|dd|p|section|h[1-6]|div|figure|figcaption|pre|nav)\b)")
ENDS = re.compile(r"</(?:thead|tbody|tr|td|th|li|dt|dd)>")
PARAGRAPH = re.compile(  # a paragraph ends where one of these begins, or what it is in ends
    r"</p>(?=\n*<(?:(?:p|div|section|figure|figcaption|dl|ul|ol|table|h[1-6])\b|/(?:section|div|figure|li|dd|blockquote)>))"
)
ROW = re.compile(r"(<math[^>]*>)<mrow>((?:(?!</?mrow>).)*)</mrow></math>", re.S)  # a formula is a row by itself
FORM = re.compile(r' form="(?:prefix|postfix)"(?=>[()\[\]{}]<)')  # a bracket has no other
FUNCTION = re.compile(r"(>(?:ln|log)</mi><mo>&#8289;</mo>(?:</mrow>)?)(?=<m)(?!<mo)")  # what it is of stands apart from it
FORMULA_AND_MARK = re.compile(r"((?:<span class=.formula. [^>]*>)?<math>(?:(?!</math>).)*</math>(?:</span>)?[,.;:!?)]+)")
MATH = re.compile(r'<math display="(inline|block)" xmlns="http://www.w3.org/1998/Math/MathML">')


def build(root, into, progress=lambda: None):
    """Build the site of `root` as the folder `into`, whole or not at all."""
    root = Path(root)
    with whole_folder(into) as folder:
        edition = Edition(root)
        for page in edition.pages:
            edition.read(page)
            progress()
        edition.links.check()
        edition.pages += [terms.page(edition.pages), edition.evidence.page(edition.pages)]
        sizes = images.draw(root, edition.pages, folder)
        assets(root, folder, edition)
        for i, page in enumerate(edition.pages):
            edition.finish(page, sizes)
            around = (edition.pages[i - 1] if i else None, edition.pages[i + 1] if i + 1 < len(edition.pages) else None)
            (folder / page.file).write_text(edition.written(page, *around), encoding="utf-8", newline="\n")
            progress()


class Edition:
    """All pages of the edition, and what they share. linked: whether a marked number is a link to its record."""

    def __init__(self, root, linked=True):
        self.root, self.web, self.linked = root, root / "content" / "web", linked
        self.records, self.pages = load_records(root), manuscripts(root)
        self.evidence = Evidence(root, self.records)
        self.links, self.figures = Links(root, self.pages), figures.Figures(root)

    def read(self, page):
        """Read a page's manuscript into blocks whose links lead to the edition's own pages."""
        text, page.uses = markdown(page, self.records, self.linked)
        text, page.figures = self.figures.filled(page, text)

        def change(node):
            if node["t"] == "Link":
                return self.links.node(page, node)
            if node["t"] == "Image":
                page.images.add((page.path.parent / node["c"][2][0]).resolve())
            if node["t"] == "CodeBlock" and "mermaid" in node["c"][0][1]:
                raise page.problem("```mermaid", "a mermaid block needs a program of its own to be drawn; draw it as a picture")
            return node

        page.blocks = changed(read(text), change)

    def finish(self, page, sizes):
        """Work into a page what no other page needs to see: pictures, listings, links at the headings."""

        def change(node):
            if node["t"] == "Image":
                return self.image(page, node, sizes)
            if node["t"] == "CodeBlock":
                (_, classes, _), code = node["c"]
                return raw_block(listing(classes[0] if classes else "", code))
            if node["t"] == "Math":
                kind, formula = node["c"][0]["t"], node["c"][1]
                if kind == "DisplayMath" or len(formula) > 24:  # may be wider than a phone
                    opening = f'<span class="formula{" display" if kind == "DisplayMath" else ""}" tabindex="0">'
                    return [raw(opening), node, raw("</span>")]
            if node["t"] == "Table":
                return [raw_block('<div class="wide" tabindex="0">'), node, raw_block("</div>")]
            if node["t"] == "Header" and node["c"][0] > 1:
                level, (id, *more), inside = node["c"]
                page.sections.append((level, id, plain(inside)))
                link = [raw(f'<a class="self" href="#{id}">'), *inside, raw("</a>")]
                return {"t": "Header", "c": [level, [id, *more], link]}
            return node

        page.blocks = changed(page.blocks, change)

    @staticmethod
    def image(page, node, sizes):
        """An Image of a page, with the picture that was drawn for it and its size."""
        _, alt, (target, _) = node["c"]
        path = (page.path.parent / target).resolve()
        width, height = sizes[path]
        size = [["width", str(width)], ["height", str(height)], ["loading", "lazy"]]
        return {"t": "Image", "c": [["", [], size], alt, [images.name_of(path), ""]]}

    def written(self, page, previous, following):
        """The page as HTML."""
        meta = {
            "title": words(page.label),
            "page": page.name,
            "toc": contents(page.sections) or None,
            "book": "".join(self._entry(one, one is page) for one in self.pages),
            "previous": previous and {"href": previous.file, "title": words(previous.label)},
            "next": following and {"href": following.file, "title": words(following.label)},
            "scripts": "\n".join(f'<script src="assets/{src}"></script>' for src in self._scripts(page)),
            "records": self.evidence.script(page.uses) if page.uses else None,
        }
        template = self.web / "template.html"
        options = ("--mathml", "--section-divs", "--syntax-highlighting=none", f"--template={template}")
        return small(write(page.blocks, meta, "html5", *options))

    @staticmethod
    def _entry(page, current):
        mark = ' aria-current="page"' if current else ""
        return f'<li><a href="{page.file}"{mark}>{escape(page.label)}</a></li>'

    def _scripts(self, page):
        found = ["figures.js", "figure-data.js"] if page.figures or page.name == "try-it" else []
        for id in page.figures:
            path = figures.script_of(self.web / "figures", id)
            found += [f"figures/{path.name}"] if path else []
        if page.name == "try-it":
            found += ["try/tokenizer.js", *(f"try/{name}.js" for name in TRY if (self.web / "try" / f"{name}.js").exists())]
        return found


def escape(text):
    """Text as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def contents(sections):
    """The contents of a page, sections of levels 2 and 3, as a nested list."""
    parts, level = [], 1
    for depth, id, text in sections:
        if depth > 3:
            continue
        if depth > level:
            parts += ["<ul>"] * (depth - level)
        else:
            parts += ["</li>", *(["</ul></li>"] * (level - depth))]
        parts.append(f'<li><a href="#{id}">{escape(text)}</a>')
        level = depth
    return "".join([*parts, *(["</li></ul>"] * (level - 1))])


def small(text):
    """A page without what only a formula's author reads, what HTML takes for granted (ends of cells, items and paragraphs), and
    line ends between blocks."""
    parts = WHOLE.split(text)
    text = "".join(part if i % 2 else ENDS.sub("", PARAGRAPH.sub("", GAP.sub("><", part))) for i, part in enumerate(parts))
    text = re.sub(r'(<section [^>]*?) class="level\d"', r"\1", text)
    text = SEMANTICS.sub(r"\1", text)
    text = ROW.sub(r"\1\2</math>", text)
    text = FUNCTION.sub(r'\1<mspace width=".2em"/>', text)
    text = FORM.sub("", text)
    text = MATH.sub(lambda match: "<math>" if match[1] == "inline" else '<math display="block">', text)
    return FORMULA_AND_MARK.sub(r'<span class="keep">\1</span>', text)  # no line begins with the comma behind a formula


def assets(root, folder, edition):
    """Copy and make what the pages load."""
    web, goal = root / "content" / "web", folder / "assets"
    (goal / "figures").mkdir(parents=True)
    (goal / "try").mkdir()
    for path in [*sorted(web.glob("*.js")), *sorted(p for p in web.glob("*.css") if p.name != "epub.css")]:
        shutil.copyfile(path, goal / path.name)
    for part in ("figures", "try"):
        for path in [*sorted((web / part).glob("*.js")), *sorted((web / part).glob("*.css"))]:
            shutil.copyfile(path, goal / part / path.name)
    (goal / "figure-data.js").write_text(figures.data_script(), encoding="utf-8", newline="\n")
    (goal / "search.js").write_text(search.index(edition.pages), encoding="utf-8", newline="\n")
    write_model_files(goal / "try")
