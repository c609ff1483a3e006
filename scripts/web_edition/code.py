"""Listings with few colours and short tags: <i> a comment, <b> a keyword, <u> a text in quotes; all else stands as it is."""

import functools
import html

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Operator, String
from pygments.util import ClassNotFound

TAGS = ((Comment, "i"), (Keyword, "b"), (Operator.Word, "b"), (String, "u"))


@functools.cache
def _lexer(language):
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def listing(language, text):
    """Markup of a block of code."""
    lexer = _lexer(language) if language not in ("", "text") else None
    runs = []  # [tag, text]: neighbours of one tag are joined
    for kind, part in lexer.get_tokens(text) if lexer else [(None, text)]:
        tag = next((tag for of, tag in TAGS if kind in of), "") if kind else ""
        if runs and (runs[-1][0] == tag or not part.strip()):
            runs[-1][1] += part
        else:
            runs.append([tag, part])
    marked = "".join(f"<{tag}>{html.escape(part, False)}</{tag}>" if tag else html.escape(part, False) for tag, part in runs)
    return f'<pre tabindex="0"><code>{marked}</code></pre>'
