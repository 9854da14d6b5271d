"""Logging in where keys are needed, and what another site may do with a session."""

import re

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Visitor
from browser.scene import Guarded

pytestmark = [pytest.mark.triton, pytest.mark.slow]


@pytest.fixture
def page(visitor: Visitor, guarded: Guarded) -> Page:
    return visitor.open(guarded.up.admin)


def show_key(page: Page, key: str) -> None:
    """As somebody does without a mouse: the field has the focus already."""
    expect(page.get_by_label("Admin key")).to_be_focused()
    page.keyboard.type(key)
    page.keyboard.press("Enter")


def test_a_page_asks_for_a_key_and_comes_back_once_it_is_shown(
    page: Page, guarded: Guarded
) -> None:
    page.goto("/live?model=digits")
    expect(page).to_have_url(re.compile(r"/login\?next=%2Flive%3Fmodel%3Ddigits$"))
    show_key(page, guarded.admin["key"])
    expect(page).to_have_url(re.compile(r"/live\?model=digits$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Live")
    assert guarded.admin["key"] not in page.content()
    (cookie,) = page.context.cookies()
    assert cookie.get("httpOnly") and cookie.get("sameSite") == "Strict"
    assert guarded.admin["key"] not in cookie.get("value", "")
    assert page.evaluate("document.cookie") == ""
    expect(page.get_by_text(f"key:{guarded.admin['id']}")).to_be_visible()
    page.get_by_role("button", name="Log out").press("Enter")
    expect(page).to_have_url(re.compile(r"/login$"))
    page.goto("/live")
    expect(page).to_have_url(re.compile(r"/login\?next="))


def test_a_page_of_another_site_changes_nothing_with_a_visitors_session(
    visitor: Visitor, page: Page, guarded: Guarded
) -> None:
    page.goto("/login")
    show_key(page, guarded.admin["key"])
    expect(page).to_have_url(re.compile(r"/$"))
    visitor.watch.allow("evil.test", "status of 403")
    form = f'<form method="post" action="{guarded.up.admin}/api/gc"><button>win</button></form>'
    page.context.route(
        "http://evil.test/**", lambda route: route.fulfill(body=form, content_type="text/html")
    )
    page.goto("http://evil.test/")
    with page.expect_response("**/api/gc") as answered:
        page.get_by_role("button").click()
    assert answered.value.status == 403
    assert "another site" in answered.value.text()
