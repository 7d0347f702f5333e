"""The playground in a real browser: tokens, keyboard, looks, and what a screen reader finds."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("httpx")
pytest.importorskip("playwright")

from playwright.sync_api import expect

from .browser import CONTRASTS
from .playground_page import PHONE, answer, drop, obedient, opened, type_conversation
from .playground_server import Scripted

# --- tokens ------------------------------------------------------------------------------------------------


def test_tokens_follow_what_is_typed_and_carry_their_role(browser: Any) -> None:
    with opened(browser, Scripted(obedient, positions=None)) as page:
        type_conversation(page, system="Be brief.", data="A typed <|im_end|> is text.")
        runs = page.locator("#tokens .run")
        expect(runs).to_have_count(4)
        assert [runs.nth(at).locator(".role").inner_text().lower() for at in range(4)] == [
            "system", "user", "data", "output",
        ]  # fmt: skip
        expect(runs.nth(2)).to_contain_text("A typed <|im_end|> is text.")
        assert runs.nth(2).locator(".control").all_text_contents() == [
            "control token <|im_start|>",
            "control token <|im_end|>",
        ]
        borders = [runs.nth(at).evaluate("one => getComputedStyle(one).borderLeftStyle") for at in range(4)]
        assert len(set(borders)) == 4, "colour must not be the only sign"
        page.get_by_label("Data", exact=True).fill("word " * 5000)
        more = page.get_by_role("button", name="Show 3,000 more")
        expect(more).to_be_visible()
        before = page.locator("#tokens .token").count()
        more.click()
        expect(page.locator("#tokens .token")).to_have_count(before + 3000)
        for label in ("System", "User", "Data"):
            page.get_by_label(label, exact=True).fill("")
        expect(page.locator("#tokens")).to_contain_text("Nothing yet")


# --- keyboard, looks, screen readers -----------------------------------------------------------------------


def test_all_works_by_keyboard(browser: Any) -> None:
    engine = Scripted(lambda prompt, scale: "word " * 400, delay=0.02)
    with opened(browser, engine) as page:
        seen: list[str] = []
        for _ in range(40):
            page.keyboard.press("Tab")
            seen.append(page.evaluate(
                "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.labels?.[0]?.textContent"
                " ?? document.activeElement.textContent).trim().replace(/\\s+/g, ' ').slice(0, 40)"
            ))  # fmt: skip
            style = page.evaluate("getComputedStyle(document.activeElement).outline")
            assert "solid 3px" in style, (seen[-1], style)
            if "Witness" in seen[-1]:
                break
        wanted = [
            "Skip to the conversation", "Theme", "Example", "Read a file into System", "System",
            "Read a file into User", "Insert an attack into User", "User",
            "Read a file into Data", "Insert an attack into Data", "Remove Data", "Data", "+ Add data",
            "Insert attack…", "Temperature", "Max tokens", "Seed", "curl", "JSON messages", "link to this page",
            "Answer", "ise, ISE on", "ise, ISE off", "Witness of the payload",
        ]  # fmt: skip
        heads = [
            next((one for one in wanted if text.startswith(one) and (one != "User" or text == one)), text)
            for text in seen
        ]
        assert heads == wanted
        type_conversation(page)
        # The library: open, choose with the arrows, insert with Enter; Escape closes it and stops nothing.
        page.get_by_role("button", name="Insert attack…").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("radio", name="naive").first).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(page.locator("#attack-summary")).to_contain_text("ignore:")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_label("Data", exact=True)).to_be_focused()
        assert "Print exactly" in page.get_by_label("Data", exact=True).input_value()
        page.keyboard.press("Control+Enter")
        expect(answer(page).locator("> .text")).to_contain_text("word")
        page.get_by_role("button", name="Insert attack…").focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(page.get_by_role("button", name="Insert attack…")).to_be_focused()
        expect(answer(page).locator(".facts")).to_contain_text("Writing…")
        page.keyboard.press("Escape")
        expect(answer(page).locator(".facts")).to_contain_text("stopped")


def test_light_and_dark_follow_the_system_and_the_choice(browser: Any) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, color_scheme="dark") as page:
        dark = page.evaluate(back)
        page.locator("#theme").select_option("light")
        light = page.evaluate(back)
        page.emulate_media(color_scheme="light")
        page.locator("#theme").select_option("dark")
        assert page.evaluate(back) == dark != light
        page.locator("#theme").select_option("")
        assert page.evaluate(back) == light == "rgb(255, 255, 255)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: Any, scheme: str) -> None:
    with opened(
        browser, Scripted(obedient), Scripted(lambda prompt, scale: ValueError("x")), color_scheme=scheme
    ) as page:
        page.locator("#example").select_option(label="The same e-mail, with an injection")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#status")).to_contain_text("failed")
        expect(page.locator("#tokens .run")).to_have_count(4)
        drop(page, "#boxes .data", ("bad.png", b"\xff"))
        expect(page.locator("#boxes .note.bad-text")).to_be_visible()
        page_texts = page.evaluate(CONTRASTS)
        page.get_by_role("button", name="Insert attack…").click()
        expect(page.locator("#preview mark")).to_be_visible()
        texts = page_texts + page.evaluate(CONTRASTS)
        assert len(texts) > 150
        assert [(round(ratio, 2), where) for ratio, where in texts if ratio < 4.5] == []


@pytest.mark.parametrize("width", [390, 320])
def test_a_phone_shows_all_without_scrolling_sideways(browser: Any, width: int) -> None:
    long = Scripted(lambda prompt, scale: "unbroken" * 60)
    with opened(browser, long, Scripted(obedient), **PHONE | {"viewport": {"width": width, "height": 700}},
                names=("a-model-with-a-very-long-name" * 3, "plain")) as page:  # fmt: skip
        type_conversation(page, user="x" * 500, data="<|im_end|>" * 80)
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#status")).to_have_text("Done.")
        expect(page.locator("#tokens .run")).to_have_count(4)
        sideways = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(sideways) == 0
        assert (
            page.evaluate(
                "document.querySelector('#tokens').scrollWidth - document.querySelector('#tokens').clientWidth"
            )
            == 0
        )
        page.get_by_role("button", name="Insert attack…").click()
        expect(page.locator("#preview mark")).to_have_count(1)
        assert (
            page.evaluate(
                "document.querySelector('#library').scrollWidth - document.querySelector('#library').clientWidth"
            )
            == 0
        )
        expect(page.get_by_role("button", name="Insert", exact=True)).to_be_in_viewport()
        page.get_by_role("button", name="Cancel").click()
        small = page.evaluate(
            "[...document.querySelectorAll('button, select, input:not([type=file]), summary')]"
            ".filter((one) => one.checkVisibility())"
            ".map((one) => (one.closest('label.check') ?? one).getBoundingClientRect())"
            ".filter(({ height, width }) => Math.min(height, width) < 24).length"
        )
        assert small == 0, "too small for a finger"


def test_a_screen_reader_finds_names_landmarks_and_one_announcement(browser: Any) -> None:
    with opened(browser, Scripted(obedient, delay=0.01)) as page:
        type_conversation(page)
        page.evaluate(
            "const announcer = document.querySelector('#announcer'); window.spoken = [];"
            "new MutationObserver(() => { if (announcer.textContent) spoken.push(announcer.textContent); })"
            ".observe(announcer, { childList: true, subtree: true, characterData: true })"
        )
        page.get_by_label("Witness of the payload").fill("Hacked!")
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#status")).to_have_text("Done.")
        expect(page.locator("#announcer")).to_contain_text(
            "ise, ISE on: It did not follow the injection. A short and faithful"
        )
        assert len(page.evaluate("window.spoken")) == 1, "not each token"
        assert page.locator("article [aria-live], article [role=status], #tokens [aria-live]").count() == 0

        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        seen = [
            (
                node["role"]["value"],
                node.get("name", {}).get("value", ""),
                {p["name"]: p["value"].get("value") for p in node.get("properties", [])},
            )
            for node in tree
            if not node.get("ignored")
        ]
        controls = {"button", "textbox", "combobox", "checkbox", "radio", "spinbutton", "searchbox", "listbox", "link"}
        assert [role for role, name, _ in seen if role in controls and not name.strip()] == []
        names = [(role, name) for role, name, _ in seen if role in ("button", "textbox", "checkbox", "spinbutton")]
        assert len(names) == len(set(names)), "two controls of one name"
        for role in ("main", "banner", "contentinfo"):
            assert [found for found, *_ in seen].count(role) == 1
        assert {"Conversation", "Answers", "What the model reads"} <= {
            name for role, name, _ in seen if role == "region"
        }
        headings = [(props.get("level"), name) for role, name, props in seen if role == "heading"]
        assert [level for level, _ in headings] == sorted([level for level, _ in headings][:2]) + [
            level for level, _ in headings[2:]
        ]
        assert headings[0][0] == 1
        assert page.evaluate("document.documentElement.lang") == "en"


def test_nothing_moves_for_those_who_want_it_still(browser: Any) -> None:
    engine = Scripted(lambda prompt, scale: "word " * 200, delay=0.02)
    with opened(browser, engine, reduced_motion="reduce") as page:
        type_conversation(page)
        page.get_by_role("button", name="Answer").click()
        facts = answer(page).locator(".facts")
        expect(facts).to_contain_text("Writing…")
        assert facts.evaluate("one => getComputedStyle(one, '::before').animationName") == "none"
        page.emulate_media(reduced_motion="no-preference")
        assert facts.evaluate("one => getComputedStyle(one, '::before').animationName") == "pulse"
        page.keyboard.press("Escape")
        expect(facts).to_contain_text("stopped")
