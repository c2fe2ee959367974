"""The page in a real browser: people who use no terminal open a session, join it, chat, lose a member, and leave."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.e2e.conftest import SMOLLM2, until
from tests.support.browser import SIZES, chromium, needs_chromium
from tests.support.cluster import ROOT, Cluster, ClusterMember

PICTURES = ROOT / ".build" / "page"
SLOW_MS = 90_000.0  # what takes a model or a plan

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Person:
    """Somebody at one machine's page. complaints: what the browser's console was told."""

    def __init__(self, browser: Browser, member: ClusterMember) -> None:
        self.member = member
        self.complaints: list[str] = []
        self.page: Page = browser.new_context(viewport=SIZES["wide"]).new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self) -> None:
        """As `ollama session page` does."""
        address = self.member.ollama("session", "page", "--print", check=True).stdout.strip()
        self.page.goto(address)

    def says_yes(self, button: str) -> None:
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_be_visible(timeout=SLOW_MS)
        dialog.get_by_role("button", name=button, exact=True).click()

    def sees(self, text: str, *, within_ms: float = SLOW_MS) -> None:
        expect(self.page.locator("#headline")).to_contain_text(text, timeout=within_ms)

    def asks(self, question: str) -> str:
        """The answer, when it is whole."""
        self.page.get_by_label("Your message").fill(question)
        self.page.get_by_role("button", name="Send").click()
        expect(self.page.get_by_role("button", name="Send")).to_be_visible(timeout=SLOW_MS)
        return self.page.locator("#talk .turn").last.inner_text()


def pictures_of(person: Person, what: str) -> None:
    """One for each size and colour scheme, for people to look at; none may be wider than its screen."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for size, viewport in SIZES.items():
        person.page.set_viewport_size(viewport)
        for scheme in ("light", "dark"):
            person.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            person.page.screenshot(path=PICTURES / f"{what}-{size}-{scheme}.png", full_page=True)
            assert person.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], (what, size)
            check_access(person, f"{what} {size} {scheme}")
    person.page.set_viewport_size(SIZES["wide"])


def check_access(person: Person, where: str) -> None:
    found = Axe().run(person.page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, f"{where}: {json.dumps(serious)[:2000]}"


def test_page_without_the_owners_token_then_it_shows_nothing_and_says_how(browser: Browser, cluster: Cluster) -> None:
    ada = cluster.members[0]
    page = browser.new_page()
    page.goto(f"{ada.url}/session")
    expect(page.get_by_role("heading", name="Whose machine is this?")).to_be_visible()
    page.locator("#entry").get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#entry .problem")).to_contain_text("belong to", timeout=10_000)
    page.locator("#entry").get_by_label("Token").fill(Path(ada.environment["KAFILA_HOME"], "token").read_text().strip())
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Open a session")).to_be_visible()
    page.close()


@pytest.mark.timeout(420)
def test_page_from_opening_a_session_to_leaving_it(browser: Browser, cluster: Cluster) -> None:
    ada, bob, cyd = (Person(browser, member) for member in cluster.members)
    for person in (ada, bob, cyd):
        person.open()
        expect(person.page.get_by_role("heading", name="Join a session")).to_be_visible(timeout=20_000)
        assert "token" not in person.page.url
    pictures_of(ada, "begin")

    create = ada.page.locator("#create-form")
    create.get_by_label("Model").fill("no/such model")
    create.get_by_role("button", name="Open it").click()
    ada.says_yes("Open")
    expect(create.locator(".problem")).not_to_be_empty(timeout=SLOW_MS)
    ada.complaints.clear()  # the browser tells its console of every refusal
    create.get_by_label("Model").fill(SMOLLM2)
    create.get_by_label("Members, this one included").fill("3")
    create.get_by_label("Tokens of context").fill("1024")
    create.get_by_role("button", name="Open it").click()
    ada.says_yes("Open")
    code = ada.page.locator("#code")
    expect(code).to_have_text(re.compile(r"^\d+(-[a-z]+){3}"), timeout=SLOW_MS)
    for person in (bob, cyd):
        join = person.page.locator("#join-form")
        join.get_by_label("Code").fill(code.inner_text())
        join.get_by_role("button", name="Look at it").click()
        person.says_yes("Join")
    bob.sees("nothing is fetched before")
    ada.page.get_by_role("button", name="Fetch by this plan…").click(timeout=SLOW_MS)
    ada.says_yes("Fetch")
    for person in (ada, bob, cyd):
        person.sees("ready")

    assert "Paris" in bob.asks("What is the capital of France? Answer in one sentence.")
    expect(bob.page.locator("#numbers")).to_contain_text("tokens/s")
    ada.page.get_by_role("button", name="What else would be possible").click()
    expect(ada.page.locator("#plans tbody tr")).to_have_count(4, timeout=SLOW_MS)
    ada.page.get_by_role("button", name="Examine it").click()
    expect(ada.page.locator("#findings li").nth(2)).to_be_visible(timeout=SLOW_MS)
    ada.page.get_by_role("button", name="QR code").click()
    expect(ada.page.get_by_alt_text("The code as a QR code")).to_be_visible()
    pictures_of(ada, "session")

    for pid in cyd.member.pids():
        os.kill(pid, signal.SIGKILL)
    expect(ada.page.locator("#members tbody tr")).to_have_count(2, timeout=SLOW_MS)
    ada.sees("ready")
    assert "Paris" in ada.asks("What is the capital of France? Answer in one sentence.")
    ada.page.get_by_role("button", name="Plan again…").click()
    ada.says_yes("Plan again")
    ada.sees("ready")
    assert ada.complaints == []
    assert bob.complaints == []

    for person in (bob, ada):
        person.page.get_by_role("button", name="Leave…").click()
        person.says_yes("Leave")
        expect(person.page.get_by_role("heading", name="Open a session")).to_be_visible(timeout=SLOW_MS)
    until(lambda: not bob.member.session() or bob.member.session()["state"] == "closed", 30)
