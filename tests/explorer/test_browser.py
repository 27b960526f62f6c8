"""What people do in the page, done in a real browser; pictures of it are kept under build/screenshots."""

import json
import re
from urllib.parse import urlencode

import numpy as np
import pytest

from rela.explorer.export import write_export
from rela.explorer.payload import dequantise

pytestmark = pytest.mark.browser
ATTACK = "<img src=x onerror=alert(1)> <script>alert(1)</script> שלום 🎉 \x00 </s>"


def link(address, **state):
    return f"{address}/#{urlencode(state, doseq=True)}"


def shows(page, *models):
    """Wait until these models' panels are there."""
    for model in models:
        page.locator(f'section[aria-label="Model {model}"] .tile').first.wait_for()
    page.locator('#panels[aria-busy="false"]').wait_for()
    assert page.locator(".panel h2").evaluate_all("all => all.map((one) => one.firstChild.textContent)") == list(models)


def chips(page, side, panel=0):
    return page.locator(".panel").nth(panel).locator(f'.chip[data-side="{side}"]')


def line(page, panel=0):
    return page.locator(".line").nth(panel).inner_text().replace("\u2068", "").replace("\u2069", "")


def pixels(page, selector):
    """The distinct colours of a canvas, as [r, g, b, a]."""
    return page.locator(selector).first.evaluate(
        """canvas => { const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set(); for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 4).join());
        return [...found].map((text) => text.split(",").map(Number)); }"""
    )


def test_the_first_view_is_the_first_example(open_page, address, views, pictures):
    page = open_page(address)
    shows(page, "rela", "soft")
    assert page.input_value("#source") == views.examples[0].source
    assert page.locator(".panel").first.locator(".tile").count() == 4
    assert page.locator("#legend-gold").is_visible()
    assert "AER" in page.locator(".figures").first.inner_text()
    page.screenshot(path=pictures / "wide-light.png", full_page=True)


def test_type_a_pair_and_read_it(open_page, address):
    page = open_page(link(address, source="A cat .", model="rela"))
    shows(page, "rela")
    page.fill("#source", "The old dog sleeps .")
    page.fill("#target", "Der alte Hund schläft .")
    page.click("text=Show attention")
    page.get_by_text("given target").wait_for()
    assert chips(page, "key").all_inner_texts() == ["The", "old", "dog", "sleeps", ".", "</s>"]
    assert chips(page, "query").all_inner_texts() == ["Der", "alte", "Hund", "schläft", ".", "</s>"]
    assert "source=The+old+dog+sleeps+." in page.url
    page.fill("#target", "")
    page.press("#target", "Enter")
    page.get_by_text("own translation").wait_for()
    assert "target" not in page.url.split("#")[1]
    page.go_back()
    page.get_by_text("given target").wait_for()
    assert page.input_value("#target") == "Der alte Hund schläft ."


def test_hovering_a_word_shows_its_links_in_every_head(open_page, address, views, pictures):
    pair = {"source": "The old dog sleeps .", "target": "Der alte Hund schläft ."}
    page = open_page(link(address, **pair, model=["rela", "soft"], layer=[2, 1], head=[1, 2]))
    shows(page, "rela", "soft")
    assert page.locator(".picture .band:visible").count() == 0
    before = page.locator(".caption").all_inner_texts()
    chips(page, "query").nth(2).hover()
    assert page.locator(".picture .band:visible").count() == 8  # four heads of either model: the same word in both
    soft = views.view("soft", **pair).attention["cross"]
    captions = page.locator(".panel").nth(1).locator(".caption").all_inner_texts()
    assert set(captions) <= set(soft.word.keys)  # every row of softmax has a strongest word
    assert line(page, 1).startswith("Hund looks at ")
    assert chips(page, "key", 1).nth(0).evaluate("chip => Number(chip.style.getPropertyValue('--share'))") > 0
    page.screenshot(path=pictures / "word-hovered.png", full_page=True)
    chips(page, "key").nth(0).hover()
    assert line(page).startswith("The is looked at by ")
    page.mouse.move(1, 1)
    assert page.locator(".picture .band:visible").count() == 0
    assert page.locator(".caption").all_inner_texts() == before


def test_null_rows_are_visibly_empty(open_page, address, views):
    """Find a null row in the payload; its row in the picture has the grey of null rows, and its links are nothing."""
    pair = {"source": views.examples[1].source, "target": views.examples[1].target}
    attentions = views.view("rela", **pair).attention.items()
    empty = {type: (dequantise(one.word, one.layers, one.heads) == 0).all(-1) for type, one in attentions}  # [L, H, T]
    type, layer, head, query = next((type, *map(int, place)) for type in empty for place in np.argwhere(empty[type]))
    page = open_page(link(address, **pair, model="rela", layer=layer + 1, head=head + 1, type=type, word=f"q{query}"))
    shows(page, "rela")
    assert line(page).endswith("looks at nothing")
    assert page.locator(".caption").nth(layer * 2 + head).inner_text() == "∅"
    assert "null" in page.locator(".rows .label").nth(query).get_attribute("class")
    grey = page.evaluate("rgb(palette().nullRow)")
    assert [*grey, 255] in pixels(page, ".full")


def test_click_a_head_and_go_back(open_page, address, pictures):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model="rela", layer=1, head=1))
    shows(page, "rela")
    assert page.locator("h3").inner_text() == "Layer 1, head 1"
    page.locator(".tile").nth(3).click()
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    assert "layer=2" in page.url
    assert page.locator('.cell[aria-selected="true"]').count() == 1
    page.go_back()
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.go_forward()
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    page.locator(".full").hover(position={"x": 5, "y": 5})
    assert re.match(r"Der → The: \d", line(page))
    page.locator(".full").screenshot(path=pictures / "matrix.png")


def test_switch_models_types_and_levels(open_page, address):
    page = open_page(link(address, source="The old dog sleeps .", target="Der alte Hund schläft .", model="rela"))
    shows(page, "rela")
    page.select_option("#beside", "soft")
    shows(page, "rela", "soft")
    page.select_option("#model", "soft")
    shows(page, "soft")
    page.check('input[name="type"][value="decoder"]', force=True)
    page.get_by_text("target words before, looked at").wait_for()
    assert chips(page, "key").first.inner_text() == "<s>"
    assert page.locator("#legend-forbidden").is_visible()
    page.check('input[name="level"][value="subword"]', force=True)
    page.locator('.chip:text-is("▁Der")').first.wait_for()
    page.select_option("#figure", "sparsity")
    assert re.search("type=decoder&level=subword&figure=sparsity", page.url)
    page.go_back()
    page.go_back()
    page.locator('.chip:text-is("Der")').first.wait_for()


def test_a_deep_link_shows_all_of_it(open_page, address):
    state = {
        "source": "The dog .",
        "target": "Der Hund .",
        "model": ["soft", "rela"],
        "layer": [2, 1],
        "head": [2, 1],
        "type": "encoder",
        "level": "subword",
        "figure": "sink",
        "word": "k0",
    }
    page = open_page(link(address, **state))
    shows(page, "soft", "rela")
    assert page.locator("h3").all_inner_texts() == ["Layer 2, head 2", "Layer 1, head 1"]
    assert page.input_value("#source") == "The dog ."
    assert page.locator('input[value="encoder"]').is_checked()
    assert page.locator('input[value="subword"]').is_checked()
    assert page.input_value("#figure") == "sink"
    assert page.locator('.chip[aria-pressed="true"]').count() == 2
    page.keyboard.press("Escape")
    page.locator(".line.idle").nth(1).wait_for()
    assert "word=" not in page.url


def test_a_broken_link_still_shows_something(open_page, address):
    page = open_page(
        link(
            address,
            source="The dog .",
            model=["<b>none", "soft"],
            layer=[1, 99],
            head=["x", "-1"],
            type="sideways",
            level="letters",
            figure="__proto__",
            word="z9",
        )
    )
    shows(page, "soft")
    assert "no model called <b>none" in page.locator("#message").inner_text()
    assert page.locator("h3").inner_text() == "Layer 1, head 1"


def test_the_keyboard_reaches_everything(open_page, address):
    page = open_page(link(address, source="The old dog .", target="Der alte Hund .", model="rela", layer=1, head=1))
    shows(page, "rela")
    page.focus("#beside")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "The"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "old"
    assert line(page).startswith("old is looked at by")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.locator('.chip[aria-pressed="true"]').wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "</s>"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className").startswith("tile")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-roledescription')") == "attention matrix"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert line(page).startswith("alte → old")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    rows = page.locator(".table tbody tr")
    rows.first.wait_for()
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["Der", "alte", "Hund", ".", "</s>"]


def test_readers_are_told_what_things_are(open_page, address):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model="soft"))
    shows(page, "soft")
    page.get_by_role("grid", name=re.compile("Heads of every layer")).wait_for()
    tile = page.get_by_role("button", name=re.compile(r"^Layer 2, head 1: sparsity 0.*null rate 0.*largest weight"))
    assert tile.count() == 1
    page.get_by_role("toolbar", name=re.compile("source words")).wait_for()
    page.get_by_role("radio", name="cross").wait_for()
    assert page.get_by_role("textbox", name="Source", exact=True).count() == 1
    unnamed = page.evaluate(
        """[...document.querySelectorAll("button, select, textarea, input")].filter((one) => !one.hidden
        && !one.labels?.length && !one.textContent.trim() && !one.getAttribute("aria-label")).length"""
    )
    assert unnamed == 0


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_only_down(open_page, address, views, dark, pictures):
    pair = {"source": views.examples[0].source, "target": views.examples[0].target}
    page = open_page(link(address, **pair), width=360, dark=dark, device_scale_factor=2)
    shows(page, "rela", "soft")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = page.evaluate("""[...document.querySelectorAll(".tile, .chip, .panel, select, textarea, button")]
        .filter((one) => one.getBoundingClientRect().right > 360.5).map((one) => one.className)""")
    assert wide == []
    page.screenshot(path=pictures / f"phone-{'dark' if dark else 'light'}.png", full_page=True)


def test_dark_has_its_own_colours(open_page, address, pictures):
    here = link(address, source="The dog .", target="Der Hund .", model="rela")
    light, dark = open_page(here), open_page(here, dark=True)
    for page in (light, dark):
        shows(page, "rela")
    background = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(background) != dark.evaluate(background)
    assert sorted(pixels(light, ".full")) != sorted(pixels(dark, ".full"))
    dark.screenshot(path=pictures / "wide-dark.png", full_page=True)


def test_attacking_text_is_text(open_page, address, pictures):
    page = open_page(link(address, source=ATTACK, target=ATTACK, model="rela"))
    shows(page, "rela")
    words = chips(page, "key").all_inner_texts()
    assert words[:4] == ["<img", "src=x", "onerror=alert(1)>", "<script>alert(1)</script>"]
    assert "␀" in words
    assert page.locator("main img, main script").count() == 0
    page.screenshot(path=pictures / "attack.png", full_page=True)


def test_refusals_are_shown_and_the_page_goes_on(open_page, address):
    page = open_page(link(address, source="dog " * 150, model="rela"))
    page.get_by_text("subwords; the explorer takes at most").wait_for()
    assert page.locator(".panel").count() == 0
    assert len(page.complaints) == 1  # the browser itself notes the 413
    page.complaints.clear()
    page.fill("#source", "The dog .")
    page.press("#source", "Enter")
    shows(page, "rela")
    assert page.locator("#message").is_hidden()


def test_long_sentences_are_drawn_at_once(open_page, address, pictures):
    """A hundred words, twice: drawing every head and moving over the words must not be felt."""
    words = " ".join("abcdefghij"[i % 10] for i in range(100))
    page = open_page(link(address, source=words, target=words, model=["rela", "soft"]))
    shows(page, "rela", "soft")
    assert chips(page, "query").count() == 101
    times = page.evaluate(
        """() => { const timed = (task) => { const start = performance.now(); task(); document.body.offsetHeight;
        return performance.now() - start; };
        const moves = Array.from({ length: 21 }, (_, i) => timed(() => point({ side: "query", index: i }, panels[0])));
        return { draw: timed(redraw), move: moves.sort((a, b) => a - b)[10] }; }"""
    )
    (pictures / "times.json").write_text(json.dumps(times))
    assert times["draw"] < 1000  # milliseconds, on a busy machine; about 20 on an idle one
    assert times["move"] < 100


def test_what_is_typed_survives_a_click_on_a_head(open_page, address):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model="rela"))
    shows(page, "rela")
    page.fill("#source", "half a thought")
    page.locator(".tile").nth(1).click()
    page.get_by_role("heading", name="Layer 1, head 2").wait_for()
    assert page.input_value("#source") == "half a thought"


def test_the_saved_file_opens_without_a_server(open_page, views, tmp_path, pictures):
    file = tmp_path / "look.html"
    write_export(file, views.start(), [views.view(name, f"The {ATTACK}", "Der Hund .") for name in ("rela", "soft")])
    page = open_page(file.as_uri())
    shows(page, "rela", "soft")
    assert page.locator("#ask").is_hidden()
    chips(page, "query").nth(1).hover()
    assert line(page, 1).startswith("Hund looks at ")
    page.locator(".panel").first.locator(".tile").nth(3).click()
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    page.select_option("#beside", "")
    shows(page, "rela")
    page.check('input[name="type"][value="encoder"]', force=True)
    page.get_by_text("source words, looking").wait_for()
    page.reload()
    shows(page, "rela")
    page.go_back()
    page.get_by_text("target words, looking").first.wait_for()
    assert {url.split("#")[0] for url in page.requests} == {file.as_uri()}
    page.screenshot(path=pictures / "saved-file.png", full_page=True)


def test_the_button_saves_such_a_file(open_page, address, tmp_path):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model="soft", layer=2, head=2))
    shows(page, "soft")
    with page.expect_download() as download:
        page.click("#export")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    other = open_page(f"{file.as_uri()}#model=soft&layer=2&head=1&type=cross")
    shows(other, "soft")
    assert other.locator("h3").inner_text() == "Layer 2, head 1"
