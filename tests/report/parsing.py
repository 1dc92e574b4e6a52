"""Pages as a test reads them: their elements, and what they say."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br"}
TAGS, ATTRIBUTES = (
    "html head meta title style body header section h1 h2 h3 h4 h5 p strong span code pre a article figure figcaption div details summary "
    "table thead tbody tfoot tr th td svg desc text line circle rect path",
    "lang charset http-equiv content name id class title href scope colspan open role aria-labelledby aria-hidden viewbox width height "
    "preserveaspectratio x y x1 y1 x2 y2 cx cy r d transform text-anchor stroke-width",
)
HOSTILE = (
    '</pre></p></td></title></style></svg><script>alert(1)</script><img src=x onerror=alert(2)>\' onload=alert(3) " style="display:none"'
    "{{ 7 * 7 }}{% raw %}<!-- ]]> &lt;b&gt; \u202ereversed\u202c\u2066\u2069\u200f \u2028 \x1b[31m \x9b \x07 \u0085 \ufeff"
)


class Parsed(HTMLParser):
    """A page's elements with their attributes, and its texts by the element around them. Raises AssertionError where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def foreign(self) -> set[str]:
        """Its elements, attributes and comments that no page of the grader has."""
        attributes = {name for _, attributes in self.elements for name in attributes}
        return (
            ({tag for tag, _ in self.elements} - set(TAGS.split()))
            | (attributes - set(ATTRIBUTES.split()))
            | set(self.comments)
        )

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(text for _, text in self.texts))

    @property
    def lines(self) -> str:
        """What is read on the page, a line for each piece of text."""
        said = (" ".join(text.split()) for tag, text in self.texts if tag != "style")
        return "".join(f"{words}\n" for words in said if words)
