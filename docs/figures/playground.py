"""Draw docs/figures/playground.png: the playground as a browser shows it, over engines that answer from a script.

python -m docs.figures.playground
"""

from __future__ import annotations

from pathlib import Path

from tests.browser import chromium, watched
from tests.chat import smollm2_tokenizer
from tests.playground_server import Scripted, playground_app, running

EXAMPLE = "The same e-mail, with an injection"


def reply(prompt: str, scale: float | None) -> str:
    """Made up: what a trained model may say with roles, and without."""
    return (
        "Hacked!"
        if scale == 0.0
        else "Lena Brandt asks to move her trip to Lisbon to the 11th of May, and for its price."
    )


def main() -> None:
    """Draw the picture."""
    output = Path(__file__).with_suffix(".png")
    app = playground_app({"ise": Scripted(reply, delay=0.02, tokenizer=smollm2_tokenizer())})
    with running(app) as (address, _), chromium() as browser, watched(browser, address) as page:
        page.set_viewport_size({"width": 1180, "height": 820})
        page.locator("#example").select_option(label=EXAMPLE)
        page.get_by_role("button", name="Answer").click()
        page.locator("#status", has_text="Done.").wait_for()
        page.locator("#tokens .run").nth(3).wait_for()
        page.locator("h1").hover()
        page.screenshot(path=output)
    print(f"{output.name}: {output.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
