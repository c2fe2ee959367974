"""What the page draws and asks of sessions that are rarely seen: its files in a real browser, and a played server."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import SIZES, chromium, needs_chromium
from tests.support.cluster import ROOT

STATIC = ROOT / "ollama" / "internal" / "page" / "static"
LARGEST = 64  # members of a session

pytestmark = needs_chromium

# How a ring looks as the page draws it: which members and labels touch each other, which labels a hop crosses,
# what is outside of the figure, and how small the letters are.
DRAWN = """async (count) => {
  const { drawRing } = await import("/session/js/session.js");
  document.getElementById("session").hidden = false;
  const names = Array.from({ length: count }, (_, i) => `machine-${i + 1}`);
  drawRing({
    self: names[0], host: names[0],
    members: names.map((name) => ({ name, present: true, doing: "ready" })),
    stages: names.map((member, i) => ({ member, start: 2 * i, end: 2 * i + 2, head: !i, predicted_s: 0.012 })),
    hops: names.slice(0, count > 1 ? count : 0).map((from, i) =>
      ({ from, to: names[(i + 1) % count], path: "direct", measured_s: 0.003 })),
  });
  const figure = document.querySelector("#ring svg");
  const scale = figure.getBoundingClientRect().width / figure.viewBox.baseVal.width;
  const texts = [...figure.querySelectorAll("text")], shown = texts.filter((text) => text.textContent);
  const box = (one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    const air = one.tagName === "text" ? (bottom - top) / 8 : 0; // above and below the letters
    return { left, right, top: top + air, bottom: bottom - air, what: one.textContent || "member" };
  };
  const points = [...figure.querySelectorAll("path.hop")].flatMap((hop) => Array.from({ length: 40 }, (_, i) => {
    const { x, y } = hop.getPointAtLength((hop.getTotalLength() * i) / 39).matrixTransform(hop.getScreenCTM());
    return { left: x - 1, right: x + 1, top: y - 1, bottom: y + 1 };
  }));
  const labels = shown.filter((text) => !text.matches(".initial")).map(box);
  const boxes = [...[...figure.querySelectorAll("circle.member")].map(box), ...labels];
  const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const within = (a, b) => b.left <= a.left && a.right <= b.right && b.top <= a.top && a.bottom <= b.bottom;
  return {
    touching: boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => touch(a, b)).map((b) => [a.what, b.what])),
    crossed: labels.filter((label) => points.some((point) => touch(point, label))).map((label) => label.what),
    outside: [...boxes, ...points].filter((one) => !within(one, box(figure))),
    letters_px: Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize) * scale)),
  };
}"""


class PlayedServer(ThreadingHTTPServer):
    """The page's files, and the answers of a machine that has one session, if any."""

    daemon_threads = True

    def __init__(self, session: dict[str, Any] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), PlayedPage)
        self.changed = threading.Condition()
        self.session = session
        self.alternatives: dict[str, str] = {}
        self.refuses = ""
        self.choices: list[dict[str, Any]] = []
        self.may_plan = threading.Event()  # for every objective; until then who asks for that waits
        self.may_plan.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/session"

    def become(self, session: dict[str, Any]) -> None:
        with self.changed:
            self.session = session
            self.changed.notify_all()

    def choose(self, choice: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.choices.append(choice)
        return (400, {"error": self.refuses}) if self.refuses else (200, {})


class PlayedPage(SimpleHTTPRequestHandler):
    server: PlayedServer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, directory=str(STATIC))

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        now = self.server.session
        if path == "/api/session/watch":
            self._watch()
        elif path == "/api/session/list":
            self._tell(200, {"sessions": [now] if now else []})
        elif path.startswith("/api/"):
            self._tell(200, {"models": []})
        else:
            self.path = path.removeprefix("/session") or "/page.html"
            super().do_GET()

    def do_POST(self) -> None:
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/choose"):
            self._tell(*self.server.choose(said))
        else:
            alternatives = dict(self.server.alternatives)
            assert self.server.may_plan.wait(10)
            self._tell(200, {"alternatives_json": alternatives})

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with self.server.changed, suppress(OSError):
            while True:
                self.wfile.write(f"data: {json.dumps(self.server.session)}\n\n".encode())
                self.server.changed.wait()

    def _tell(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: what fails is seen in the browser."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def opened(browser: Browser, server: PlayedServer, size: str = "wide") -> Page:
    page = browser.new_page(viewport=SIZES[size])
    page.goto(server.url)
    return page


@pytest.mark.parametrize("size", SIZES)
def test_ring_of_however_many_then_no_label_or_member_touches_another_and_all_can_be_read(
    browser: Browser, size: str
) -> None:
    page = opened(browser, PlayedServer(), size)
    for count in (1, 2, 3, 4, 5, 8, 9, 16, LARGEST):
        drawn = page.evaluate(DRAWN, count)
        assert (count, drawn["touching"], drawn["crossed"], drawn["outside"]) == (count, [], [], [])
        assert drawn["letters_px"] >= 11, count
    page.close()


def choosing(epoch: int, head_blocks: int) -> dict[str, Any]:
    """The host's session, whose first plan waits for this person."""
    member = {"present": True, "device": "cpu", "usable_memory_bytes": "1000"}
    return {
        "id": "s1", "model": "some/model", "state": "linking", "doing": "waiting for ada", "epoch": epoch,
        "self": "ada", "host": "ada", "notices": [], "stages": [], "hops": [], "joining": "open", "rendezvous_note": "",
        "code": "7-ocean-velvet-lamp",
        "members": [{"name": "ada", "doing": "choosing", **member}, {"name": "bob", "doing": "waiting", **member}],
        "plan_json": planned(head_blocks),
    }  # fmt: skip


def planned(head_blocks: int) -> str:
    return json.dumps({"stages": stages(head_blocks), "tokens_per_s_one_user": 12.5})


def stages(head_blocks: int) -> list[dict[str, Any]]:
    return [
        {"member": "ada", "start": 0, "end": head_blocks},
        {"member": "bob", "start": head_blocks, "end": 30},
    ]


def says_fetch(page: Page) -> None:
    with page.expect_response("**/choose"):
        page.get_by_role("dialog").get_by_role("button", name="Fetch", exact=True).click()


def test_choice_when_another_plan_stands_by_then_then_it_says_so_and_the_next_names_what_is_shown_now(
    browser: Browser,
) -> None:
    server = PlayedServer(choosing(2, head_blocks=10))
    page = opened(browser, server)
    page.get_by_role("button", name="Fetch by this plan…").click()
    expect(page.get_by_role("dialog")).to_contain_text("ada 10, bob 20")
    server.refuses = "another plan stands by now"
    server.become(choosing(3, head_blocks=14))
    expect(page.locator("#chosen")).to_contain_text("ada 14, bob 16")
    says_fetch(page)
    expect(page.locator("#toasts")).to_contain_text("another plan stands by now")
    server.refuses = ""
    page.get_by_role("button", name="Fetch by this plan…").click()
    says_fetch(page)
    assert [one["shown"] for one in server.choices] == [stages(10), stages(14)]
    page.close()


def test_choice_when_what_was_asked_for_another_plan_comes_late_then_the_page_shows_the_one_that_stands_by(
    browser: Browser,
) -> None:
    server = PlayedServer(choosing(2, head_blocks=10))
    server.alternatives = {"throughput": planned(15)}
    server.may_plan.clear()
    page = opened(browser, server)
    expect(page.locator("#chosen")).to_contain_text("ada 10, bob 20")
    server.alternatives = {}
    server.become(choosing(3, head_blocks=14))
    expect(page.locator("#chosen")).to_contain_text("ada 14, bob 16")
    answered: list[str] = []
    page.on("requestfinished", lambda request: answered.append(request.url))
    server.may_plan.set()
    for _ in range(100):
        page.wait_for_timeout(50)
        if sum(url.endswith("/plan") for url in answered) == 2:
            break
    page.wait_for_timeout(100)
    assert [one.get_attribute("data-division") for one in page.locator("#choices button").all()] == ["ada 14, bob 16"]
    assert "ada 15" not in page.locator("#plans").inner_text()
    page.close()


def test_choice_when_it_is_another_objective_then_it_names_that_ones_division(browser: Browser) -> None:
    server = PlayedServer(choosing(2, head_blocks=10))
    server.alternatives = {"latency": planned(10), "throughput": planned(15)}
    page = opened(browser, server)
    page.get_by_role("button", name=re.compile("^Best for throughput: ada 15, bob 15")).click()
    says_fetch(page)
    assert server.choices == [{"session": "s1", "objective": "throughput", "shown": stages(15)}]
    page.close()


def test_question_when_it_is_asked_by_keyboard_then_escape_does_nothing_and_leads_back(browser: Browser) -> None:
    server = PlayedServer(choosing(2, head_blocks=10))
    page = opened(browser, server)
    button = page.get_by_role("button", name="Fetch by this plan…")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Fetch by this plan?")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(button).to_be_focused()
    assert server.choices == []
    page.close()


def test_controls_when_a_screen_reader_names_them_then_no_two_are_called_alike(browser: Browser) -> None:
    session = choosing(2, head_blocks=10)
    session["members"].append({**session["members"][1], "name": "cyd"})
    page = opened(browser, PlayedServer(session))
    expect(page.get_by_role("button", name="Remove cyd…")).to_be_visible()
    named = re.findall(r'- (button|textbox|combobox|spinbutton) "([^"]+)"', page.locator("body").aria_snapshot())
    assert len(named) >= 12
    assert len(set(named)) == len(named), sorted(named)
    page.close()
