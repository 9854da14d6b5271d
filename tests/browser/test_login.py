"""Logging in where keys are needed: by an admin key, until it is revoked or somebody logs out."""

import re

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Visitor
from browser.scene import Guarded

pytestmark = pytest.mark.triton
REFUSED = r"status of 40[13]"


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


@pytest.mark.slow
def test_a_key_that_is_no_admins_is_refused_in_words_and_nobody_is_sent_to_another_site(
    visitor: Visitor, page: Page, guarded: Guarded
) -> None:
    visitor.watch.allow(REFUSED)
    page.goto("/login?next=//evil.test/")
    for key in ("sg_0000_" + "x" * 43, guarded.caller["key"]):
        show_key(page, key)
        expect(page.get_by_role("alert").filter(has_text="key")).to_be_visible()
        expect(page.get_by_label("Admin key")).to_have_attribute("aria-invalid", "true")
        expect(page.get_by_label("Admin key")).to_have_value("")
    assert page.context.cookies() == []
    show_key(page, guarded.admin["key"])
    expect(page).to_have_url(guarded.up.admin + "/")


@pytest.mark.slow
def test_a_revoked_key_ends_its_sessions(page: Page, guarded: Guarded) -> None:
    made = guarded.make("admin")
    page.goto("/login")
    show_key(page, made["key"])
    expect(page).to_have_url(re.compile(r"/$"))
    guarded.revoke(made)
    page.goto("/live")
    expect(page).to_have_url(re.compile(r"/login\?next=%2Flive$"))


@pytest.mark.slow
def test_a_page_of_another_site_changes_nothing_with_a_visitors_session(
    visitor: Visitor, page: Page, guarded: Guarded
) -> None:
    page.goto("/login")
    show_key(page, guarded.admin["key"])
    expect(page).to_have_url(re.compile(r"/$"))
    visitor.watch.allow("evil.test", REFUSED)
    form = f'<form method="post" action="{guarded.up.admin}/api/gc"><button>win</button></form>'
    page.context.route(
        "http://evil.test/**", lambda route: route.fulfill(body=form, content_type="text/html")
    )
    page.goto("http://evil.test/")
    with page.expect_response("**/api/gc") as answered:
        page.get_by_role("button").click()
    assert answered.value.status == 403
    assert "another site" in answered.value.text()
