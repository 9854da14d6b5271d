"""Pages that are right, and one for each thing that a page can do wrong, without any server."""

from playwright.sync_api import Page, Route

HOME = "http://pages.test"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src *"
)
_STYLE = """
body { margin: 0; font: 16px sans-serif; background: #fff; color: #111 }
.hidden { width: 4rem; overflow: hidden; white-space: nowrap }
.low { height: 8px; overflow: hidden }
.scrolls { width: 4rem; overflow: auto; white-space: nowrap }
.narrow { width: 4rem; white-space: nowrap }
.wide { width: 3000px }
.on { position: relative; top: -1rem }
.faint { color: #ccc }
:focus-visible { outline: 3px solid #00f }
.unseen:focus-visible { outline: none }
"""
_SCRIPTS = {
    "/throw.js": "throw new Error('broken')",
    "/complain.js": "console.error('something is wrong')",
    "/ask.js": "alert('hurt')",
    "/trap.js": """
        for (const one of document.querySelectorAll("button"))
          one.addEventListener("keydown", (event) => {
            if (event.key === "Tab") event.preventDefault();
          });
    """,
}
RIGHT = """
<h1>Right</h1><p>A text with <a href="/x">a link</a>.</p>
<form><label>Name <input></label> <button>Send</button></form>
<label><input type="radio" name="r"> one</label> <label><input type="radio" name="r"> two</label>
<div class="scrolls" tabindex="0" role="region" aria-label="N">a text that is longer</div>
"""


def open_page(page: Page, body: str, *, policy: str = _POLICY) -> None:
    """Show a page with this body in the browser."""

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(HOME)
        if path == "/":
            html = (
                '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>'
                '<link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css"></head>'
                f"<body><main>{body}</main></body></html>"
            )
            headers = {"content-security-policy": policy} if policy else {}
            route.fulfill(body=html, content_type="text/html", headers=headers)
        elif path == "/style.css":
            route.fulfill(body=_STYLE, content_type="text/css")
        else:
            route.fulfill(body=_SCRIPTS.get(path, ""), content_type="text/javascript")

    page.context.route("**/*", answer)
    page.goto(HOME + "/")
    page.wait_for_load_state("networkidle")
