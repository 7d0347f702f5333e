"""A real browser for tests: every page is watched for requests to elsewhere, violations of its policy, and errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => {
  violations.push(`${violatedDirective} ${blockedURI}`);
});
"""

CONTRASTS = """
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((value, at) => value * a + below[at] * (1 - a));
  const light = (rgb) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (element) => {
    if (element === null) throw new Error("nothing is opaque");
    const own = parsed(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own.slice(0, 3) : over(own, background(element.parentElement));
  };
  const opacity = (element) =>
    element === null ? 1 : Number(getComputedStyle(element).opacity) * opacity(element.parentElement);
  const modal = document.querySelector("dialog[open]");
  const found = [];
  for (const element of (modal ?? document.body).querySelectorAll("*")) {
    const fields = ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
    const said = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    if (!said && !(fields && (element.value || element.placeholder))) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest("dialog") !== modal || element.tagName === "OPTION" || element.disabled) continue;
    const below = background(element);
    const colours = [getComputedStyle(element).color];
    if (element.placeholder) colours.push(getComputedStyle(element, "::placeholder").color);
    for (const colour of colours) {
      const [r, g, b, a] = parsed(colour);
      const above = over([r, g, b, a * opacity(element)], below);
      const [dark, bright] = [light(above), light(below)].sort((one, other) => one - other);
      const where = `${element.tagName}.${element.className}: ${said || element.value}`;
      found.push([(bright + 0.05) / (dark + 0.05), where.slice(0, 80)]);
    }
  }
  return found;
}
"""
"""The contrast of every text that can be seen (in a dialog where one is open), with where it stands."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as running:
        try:
            browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@contextmanager
def watched(browser: Any, address: str, *, path: str = "", errors: str = "", **options: Any) -> Iterator[Any]:
    """A page at the address, whose asserts come when it is left.

    Args:
        browser: from `chromium`.
        address: of the server; a request to anything else fails the test.
        path: what to open.
        errors: messages of the console that are expected hold this.
        options: of the context (viewport, color_scheme, permissions).
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(15_000)
    context.add_init_script(_WATCH)
    page = context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on(
        "console",
        lambda message: (
            problems.append(f"{message.type}: {message.text}")
            if message.type in ("error", "warning") and not (errors and errors in message.text)
            else None
        ),
    )
    page.goto(address + path)
    yield page
    assert page.evaluate("window.violations") == []
    assert problems == []
    elsewhere = [url for url in requests if urlsplit(url).scheme != "data" and not url.startswith(f"{address}/")]
    assert elsewhere == []
    context.close()
