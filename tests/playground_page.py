"""The playground's page in a browser, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import expect

from rolewise.serving.settings import ServerSettings

from .browser import watched
from .playground_server import Scripted, playground_app, running

HOSTILE = (
    '</textarea></script><img src=x onerror="window.pwned=1"><script>window.pwned=1</script>&amp;<b>\u202eevil\x1b[31m'
)
CLIPBOARD = ["clipboard-read", "clipboard-write"]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def obedient(prompt: str, scale: float | None) -> str:
    """Follows what stands in the data only without roles."""
    return "Hacked!" if scale == 0.0 and "Hacked" in prompt else "A short and faithful answer."


@contextmanager
def opened(
    browser: Any, *engines: Scripted, settings: ServerSettings | None = None, names: tuple[str, ...] = ("ise", "plain"),
    ready: bool = True, **options: Any,
) -> Iterator[Any]:  # fmt: skip
    """The page of a server with these engines (by default one that is obedient)."""
    backends = dict(zip(names, engines or (Scripted(obedient),), strict=False))
    with running(playground_app(backends, settings)) as (address, stop), watched(browser, address, **options) as page:
        page.address, page.stop_server = address, stop
        if ready:
            expect(page.locator("#main")).to_be_visible()
        yield page


def type_conversation(page: Any, *, system: str = "", user: str = "Who sings?", data: str = "Anna sings.") -> None:
    page.get_by_label("System", exact=True).fill(system)
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Data", exact=True).fill(data)


def answer(page: Any, which: str = "ise, ISE on") -> Any:
    return page.get_by_role("article", name=f"Answer of {which}")


DROP = """
([selector, files]) => {
  const data = new DataTransfer();
  for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name));
  for (const kind of ["dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.querySelector(selector).dispatchEvent(event);
    if (!event.defaultPrevented) throw new Error("the browser would open the file");
  }
}
"""


def drop(page: Any, selector: str, *files: tuple[str, bytes]) -> None:
    page.evaluate(DROP, [selector, [[name, list(content)] for name, content in files]])
