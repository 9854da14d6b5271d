"""What a page of ours holds: tags, words, headings and pictures."""

from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script>\"'&"


class Seen(HTMLParser):
    """Which tags, headings and words a page has, and which of its tags are not closed."""

    EMPTY = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.headings: list[str] = []
        self.pictures: list[str] = []
        self.heads_without_scope = 0
        self.feed(page)
        assert not self.open

    @property
    def said(self) -> str:
        """All words, with usual spaces."""
        return " ".join(self.words).replace("\N{NO-BREAK SPACE}", " ")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        named = dict(attrs)
        if tag == "svg" and "in" not in str(named.get("class")).split():
            assert named.get("role") == "img"
            self.pictures.append(str(named["aria-label"]))
        self.heads_without_scope += tag == "th" and "scope" not in named
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            return
        assert "nan" not in data.lower().split()
        if data.strip():
            self.words.append(data.strip())
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)
