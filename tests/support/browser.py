"""A real browser, for tests of the page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ViewportSize, sync_playwright

SIZES = {"phone": ViewportSize(width=390, height=844), "wide": ViewportSize(width=1440, height=900)}

_CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None, reason="needs Debian's chromium, which .ci/deps installs as root"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Started, and closed again."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
