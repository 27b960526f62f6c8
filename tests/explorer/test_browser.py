"""What people do in the page, done in a real browser; pictures of it are kept under build/screenshots."""

import json
import re
from importlib.resources import files
from importlib.util import find_spec
from urllib.parse import urlencode

import numpy as np
import pytest

from rela.explorer.examples import guide_example, toy_examples
from rela.explorer.export import write_export
from rela.explorer.payload import dequantise
from tests.explorer.conftest import serving, two_directions
from tests.tiny_models import HEADS, LAYERS, tiny_translator

pytestmark = pytest.mark.browser
ATTACK = "<img src=x onerror=alert(1)> <script>alert(1)</script> שלום 🎉 \x00 </s>"


def link(address, **state):
    """The address of a state; of cross attention, unless it says another: untrained models may align best shifted."""
    return f"{address}/#{urlencode({'type': 'cross', **state}, doseq=True)}"


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


def translation(page, panel=0):
    return page.locator(".panel").nth(panel).locator(".translation").inner_text()


def pixels(page, selector):
    """The distinct colours of a canvas, as [r, g, b, a]."""
    return page.locator(selector).first.evaluate(
        """canvas => { const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set(); for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 4).join());
        return [...found].map((text) => text.split(",").map(Number)); }"""
    )


def test_a_model_of_the_other_direction_is_shown_the_pair_turned_round(open_page):
    """It does not stand beside one that reads the other language, and its examples are turned round too."""
    with serving(two_directions()) as address:
        page = open_page(address)
        shows(page, "en-de")
        assert page.locator("#beside-choice").is_hidden()
        assert page.locator("#model option").all_inner_texts() == ["en-de (en to de)", "de-en (de to en)"]
        source, target = page.input_value("#source"), page.input_value("#target")
        page.select_option("#model", "de-en")
        shows(page, "de-en")
        assert (page.input_value("#source"), page.input_value("#target")) == (target, source)
        page.select_option("#example", "1")
        page.wait_for_function("text => document.getElementById('source').value === text", arg=toy_examples()[1].target)
        shows(page, "de-en")
        page.close()


def test_the_page_begins_with_a_guide(open_page, address, views, pictures):
    """Each step is a state of the page with a sentence that says what to see."""
    page = open_page(address)
    shows(page, "rela", "soft")
    guide = guide_example()
    assert (page.input_value("#source"), page.input_value("#target")) == (guide.source, guide.target)
    assert "has no English word" in page.locator("#guide p").inner_text()
    assert line(page).startswith("“ja” looks at ")
    best = "shifted" if views.models[0]["choice"]["shifted"] else "cross"
    assert page.locator('input[name="type"]:checked').input_value() == best, "the view in which the best head aligns"
    page.screenshot(path=pictures / "guide.png", full_page=True)
    page.click("text=Another sentence’s target >> nth=0")
    page.locator(".change").nth(1).wait_for()
    assert page.locator("[aria-current]").inner_text() == "2Another sentence’s target"
    page.click("text=Heads switched off")
    page.get_by_text("Switched off: cross layer").first.wait_for()
    page.click("text=Your own sentence")
    page.locator(".change").first.wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "source"
    page.click("text=Close")
    page.locator("#guide").wait_for(state="hidden")
    assert "guide" not in page.url


def test_an_example_is_shown_with_its_gold_links(open_page, address, views, pictures):
    page = open_page(address)
    shows(page, "rela", "soft")
    page.select_option("#example", "0")
    page.wait_for_url(re.compile("source="))
    page.get_by_text("possible").wait_for()
    shows(page, "rela", "soft")
    assert page.input_value("#source") == views.examples[0].source
    assert page.locator("#guide").is_hidden()
    assert page.locator(".panel").first.locator(".tile").count() == 6  # two layers of two heads and their mean
    assert page.locator("#legend-gold").is_visible()
    assert "AER" in page.locator(".figures").first.inner_text()
    page.screenshot(path=pictures / "wide-light.png", full_page=True)


def test_enter_in_the_source_shows_the_models_own_translation(open_page, address, views):
    """Whatever target was shown before: it belongs to the old source."""
    page = open_page(link(address, source="A cat .", target="Eine Katze .", model=["rela", "soft"]))
    shows(page, "rela", "soft")
    page.fill("#source", "The old dog sleeps .")
    page.press("#source", "Enter")
    page.locator(".panel .about").get_by_text("own translation").nth(1).wait_for()
    for panel, kind in enumerate(("rela-g", "softmax")):
        assert translation(page, panel) == tiny_translator(kind).translate(["The old dog sleeps ."])[0]
    assert page.input_value("#target") == ""
    page.fill("#target", "Der Hund .")
    page.press("#source", "Enter")  # once more: the target that was typed is not for this key
    page.wait_for_function("document.querySelector('#target').value === ''")
    assert page.locator(".panel .about").get_by_text("own translation").count() == 2


def test_each_model_opens_at_its_own_best_head(open_page, address, views):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model=["rela", "soft"]))
    shows(page, "rela", "soft")
    for model, title in zip(views.models, page.locator("h3").all_inner_texts(), strict=True):
        layer, head = model["choice"]["layer"], model["choice"]["head"]
        assert title == f"Layer {layer + 1}, {'mean of all heads' if head == 2 else f'head {head + 1}'}"


def test_another_sentences_target_in_one_click(open_page, address, views):
    """The null rows before and after are those of the two views."""
    source, own = views.examples[1].source, views.examples[1].target
    page = open_page(link(address, source=source, target=own, model=["rela", "soft"]))
    shows(page, "rela", "soft")
    page.click("#swap")
    page.locator(".change").nth(1).wait_for()
    other = page.input_value("#target")
    assert other in {example.target for example in views.examples} - {own}
    rates = [
        np.array(views.view("rela", source, target).attention["cross"].subword.null_rate) for target in (own, other)
    ]
    shown = re.findall(r"([\d.]+)\s%", page.locator(".change").first.inner_text())
    assert [float(rate) for rate in shown] == pytest.approx([100 * rate[:, :-1].mean() for rate in rates], abs=0.5)
    assert "must look somewhere" in page.locator(".change").nth(1).inner_text()
    page.click("#swap")
    page.wait_for_function("(old) => document.querySelector('#target').value !== old", arg=other)
    assert page.input_value("#target") not in (own, other)
    page.press("#source", "Enter")
    page.locator(".change").first.wait_for(state="detached")


def test_heads_are_switched_off_and_on(open_page, address, views):
    page = open_page(link(address, source="The old dog sleeps .", model="rela", layer=1, head="mean"))
    shows(page, "rela")
    before = translation(page)
    page.click("text=Switch all heads of this layer off")
    page.get_by_text("Switched off: cross layer 1 heads 1, 2").wait_for()
    assert page.locator(".cell.off").count() == 3
    found = views.view("rela", "The old dog sleeps .", off=[["cross", 0, 0], ["cross", 0, 1]])
    assert translation(page) == (found.target or "(an empty translation)")
    compared = page.locator(".compared").all_inner_texts()
    assert ("stays the same" in page.locator(".change").inner_text()) == (before == found.target)
    assert not compared or before in compared[0]
    page.locator(".tile").nth(0).click()
    page.click("text=Switch this head on")
    page.get_by_text("Switched off: cross layer 1 head 2").wait_for()
    page.reload()
    shows(page, "rela")
    assert page.locator(".cell.off").count() == 1
    page.click("text=Switch all on")
    page.locator(".change").wait_for(state="detached")
    assert translation(page) == before
    assert "off=" not in page.url


def test_words_have_their_log_probability_and_lines(open_page, address, views):
    """A line for each weight of at least a tenth of the largest; a click on a label holds its word."""
    pair = {"source": "The old dog sleeps .", "target": "Der alte Hund schläft ."}
    page = open_page(link(address, **pair, model="rela", layer=2, head=1))
    shows(page, "rela")
    view = views.view("rela", **pair)
    scores = chips(page, "query").evaluate_all("all => all.map((one) => one.dataset.score.replace('−', '-'))")
    assert [float(score) for score in scores] == pytest.approx(view.log_probs["word"], abs=0.0051)
    cross = view.attention["cross"]
    shares = dequantise(cross.word, LAYERS, HEADS)[1, 0] / cross.word.largest[1][0]
    assert page.locator(".lines path").count() == int((shares >= 0.1).sum()) > 0
    page.locator(".rows .label").nth(2).click()
    page.locator('.chip[aria-pressed="true"]').wait_for()
    assert line(page).startswith("“Hund” looks at")
    kept = int((shares[2] >= 0.1).sum())
    page.mouse.move(1, 1)
    assert page.locator(".lines path:not(.faint)").count() == kept
    page.locator(".lines .key .label").nth(0).click()
    page.wait_for_url(re.compile("word=k0"))


def test_shifted_and_layer_attention_have_their_own_error_rate(open_page, address, views):
    first = views.examples[0]
    pair = {"source": first.source, "target": first.target}
    page = open_page(link(address, **pair, model="rela", figure="aer", type="shifted", layer=1, head="mean"))
    shows(page, "rela")
    gold = views.view("rela", **pair).gold
    wanted = [f"AER {100 * rate:.1f}\u00a0%" for row in gold.aer_shifted for rate in row]
    assert page.locator(".caption").all_inner_texts() == wanted
    assert page.locator("h3").inner_text() == "Layer 1, mean of all heads"
    assert chips(page, "query").all_inner_texts() == first.target.split()  # no row is left for </s>
    page.check('input[name="type"][value="encoder"]', force=True)
    page.get_by_text("each source word looks at all").wait_for()
    assert page.input_value("#figure") == "null_rate"
    assert page.locator(".caption").first.inner_text().startswith("null ")
    page.check('input[name="type"][value="cross"]', force=True)
    page.get_by_text("looks at the words of the source").wait_for()
    page.fill("#target", "Der Hund .")
    page.press("#target", "Enter")
    page.locator('.chip:text-is("Der")').wait_for()
    assert page.locator("#figure option").all_inner_texts() == ["null rate", "sparsity", "share on </s>"]


def test_unknown_characters_are_said_and_joiners_kept(open_page, address):
    joined = ["👨\u200d👩\u200d👧", "می\u200cخواهم", "क्\u200dष"]
    page = open_page(
        link(address, source=" ".join([*joined, "\u200d", "dog\u200e"]), target="Der Hund .", model="rela")
    )
    shows(page, "rela")
    assert chips(page, "key").all_inner_texts() == [*joined, "\ufffd", "dog\ufffd", "</s>"]
    said = page.locator(".note").inner_text().replace("\u2068", "").replace("\u2069", "")
    assert said.startswith(f"The model does not know “{joined[0]}”, “")
    assert said.endswith("in the source: it reads <unk> there.")


def test_quotes_are_turned_with_their_word(open_page, address):
    """In vertical text a quotation mark has a glyph of its own unless it is turned as the letters are."""
    page = open_page(link(address, source="„Hund“ dog .", target="Der Hund .", model="rela"))
    shows(page, "rela")
    labels = page.locator(".columns .label")
    assert labels.evaluate_all("all => all.map((one) => getComputedStyle(one).textOrientation)") == ["sideways"] * 4


def test_every_term_has_a_sentence(open_page, address, views):
    first = views.examples[0]
    page = open_page(link(address, source=first.source, target=first.target, model="rela"))
    shows(page, "rela")
    for name in page.locator(".figures dt").all_inner_texts():
        page.locator(".term").get_by_text(name, exact=True).click()
        said = page.locator(".help").inner_text()
        assert len(said.split()) > 5
        assert said.split(":")[0] in name
    page.get_by_text("What the words mean").click()
    listed = page.locator("#terms dt").all_inner_texts()
    assert {"null rate", "sparsity", "AER", "shifted", "</s>"} <= set(listed)


@pytest.mark.skipif(not find_spec("axe_core_python"), reason="the accessibility rules come with axe-core-python")
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing(open_page, address, views, colours):
    """The rules of axe-core on the page as it opens, with heads off and a term explained."""
    rules = files("axe_core_python") / "axe.min.js"
    page = open_page(address, dark=colours == "dark")
    shows(page, "rela", "soft")
    page.click("text=Heads switched off")
    page.locator(".change").nth(1).wait_for()
    page.locator(".term").first.click()
    page.evaluate(rules.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(({ violations }) => violations)")
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


def test_forced_colours_keep_the_pictures_and_show_what_is_chosen(open_page, address, pictures):
    here = link(address, source="The dog .", target="Der Hund .", model="rela", layer=1, head=1)
    plain, forced = open_page(here), open_page(here, forced_colors="active")
    for page in (plain, forced):
        shows(page, "rela")
    assert sorted(pixels(plain, ".full")) == sorted(pixels(forced, ".full"))
    outline = "one => getComputedStyle(one).outlineStyle"
    assert forced.locator('.cell[aria-selected="true"]').evaluate(outline) == "solid"
    assert forced.locator('.cell[aria-selected="false"]').first.evaluate(outline) == "none"
    background = "one => getComputedStyle(one).backgroundColor"
    assert forced.locator(".field").evaluate(background) == plain.locator(".field").evaluate(background)
    forced.screenshot(path=pictures / "forced-colours.png", full_page=True)


def test_a_phones_first_screen_has_a_picture(open_page, address, pictures):
    page = open_page(address, width=360, device_scale_factor=2)
    shows(page, "rela", "soft")
    top = page.locator(".lines svg").first.evaluate("one => one.getBoundingClientRect().top")
    assert top < 800 - 200
    page.screenshot(path=pictures / "phone-first-screen.png")


def test_type_a_pair_and_read_it(open_page, address):
    page = open_page(link(address, source="A cat .", model="rela"))
    shows(page, "rela")
    page.fill("#source", "The old dog sleeps .")
    page.fill("#target", "Der alte Hund schläft .")
    page.click("text=Show this pair")
    page.get_by_text("given target").wait_for()
    assert chips(page, "key").all_inner_texts() == ["The", "old", "dog", "sleeps", ".", "</s>"]
    assert chips(page, "query").all_inner_texts() == ["Der", "alte", "Hund", "schläft", ".", "</s>"]
    assert "source=The+old+dog+sleeps+." in page.url
    page.fill("#target", "")
    page.press("#target", "Enter")
    page.locator(".panel .about").get_by_text("own translation").wait_for()
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
    assert page.locator(".picture .band:visible").count() == 12  # both models' heads and means: the same word in both
    soft = views.view("soft", **pair).attention["cross"]
    captions = page.locator(".panel").nth(1).locator(".caption").all_inner_texts()
    assert set(captions) <= set(soft.word.keys)  # every row of softmax has a strongest word
    assert line(page, 1).startswith("“Hund” looks at “")
    assert chips(page, "key", 1).nth(0).evaluate("chip => Number(chip.style.getPropertyValue('--share'))") > 0
    page.screenshot(path=pictures / "word-hovered.png", full_page=True)
    chips(page, "key").nth(0).hover()
    assert line(page).startswith("“The” is looked at by “")
    page.mouse.move(1, 1)
    assert page.locator(".picture .band:visible").count() == 0
    assert page.locator(".caption").all_inner_texts() == before


def test_null_rows_are_visibly_empty(open_page, address, views):
    """Find a null row in the payload; its row in the picture has the grey of null rows, and its links are nothing."""
    pair = {"source": views.examples[1].source, "target": views.examples[1].target}
    attentions = views.view("rela", **pair).attention.items()
    empty = {
        type: (dequantise(one.word, one.layers, one.heads) == 0).all(-1)
        for type, one in attentions
        if type != "shifted"
    }
    empty = {type: rows[:, :-1] for type, rows in empty.items()}  # [L, H, T]
    type, layer, head, query = next((type, *map(int, place)) for type in empty for place in np.argwhere(empty[type]))
    page = open_page(link(address, **pair, model="rela", layer=layer + 1, head=head + 1, type=type, word=f"q{query}"))
    shows(page, "rela")
    assert re.search(r"looks at nothing \(in \d+ of 4 heads\)$", line(page))
    assert page.locator(".caption").nth(layer * 3 + head).inner_text() == "∅"
    assert "null" in page.locator(".rows .label").nth(query).get_attribute("class")
    grey = page.evaluate("rgb(palette().nullRow)")
    assert [*grey, 255] in pixels(page, ".full")


def test_click_a_head_and_go_back(open_page, address, pictures):
    page = open_page(link(address, source="The dog .", target="Der Hund .", model="rela", layer=1, head=1))
    shows(page, "rela")
    assert page.locator("h3").inner_text() == "Layer 1, head 1"
    page.locator(".tile").nth(4).click()
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    assert "layer=2" in page.url
    assert page.locator('.cell[aria-selected="true"]').count() == 1
    page.go_back()
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.go_forward()
    page.get_by_role("heading", name="Layer 2, head 2").wait_for()
    page.locator(".full").hover(position={"x": 5, "y": 5})
    assert re.match(r"“Der” → “The”: \d", line(page))
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
            off=["", "cross.9.1 sideways.1.1 cross.0.0 x"],
            guide="none",
        )
    )
    shows(page, "soft")
    assert "no model called <b>none" in page.locator("#message").inner_text()
    assert page.locator("h3").inner_text().startswith("Layer ")
    assert page.locator(".cell.off").count() == 0


def test_the_keyboard_reaches_everything(open_page, address):
    page = open_page(link(address, source="The old dog .", target="Der alte Hund .", model="rela", layer=1, head=1))
    shows(page, "rela")
    page.focus("#beside")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "The"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "old"
    assert line(page).startswith("“old” is looked at by")
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
    assert page.evaluate("document.activeElement.textContent") == "Switch this head off"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-roledescription')") == "attention matrix"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert line(page).startswith("“alte” → “old”")
    while page.evaluate("document.activeElement.tagName") != "SUMMARY":
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
    wide = page.evaluate("""[...document.querySelectorAll(".tile, .panel, select, textarea, button:not(.chip)")]
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
    scrollers = page.locator(".scroller")
    scrollers.first.evaluate("one => { one.scrollTop = one.scrollHeight; }")
    page.wait_for_function(
        """() => [...document.querySelectorAll(".scroller")].every((one) =>
        one.scrollTop > 0 && one.scrollTop + one.clientHeight >= one.scrollHeight - 2)"""
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
    assert line(page, 1).startswith("“Hund” looks at “")
    page.locator(".panel").first.locator(".tile").nth(4).click()
    page.get_by_role("region", name="Model rela").get_by_role("heading", name="Layer 2, head 2").wait_for()
    assert page.locator(".switch:visible, #guide:visible").count() == 0
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


def test_the_button_saves_what_is_shown(open_page, address, views, tmp_path, pictures):
    """With the head that is chosen, and the null rows before another sentence's target was taken."""
    source, own = views.examples[1].source, views.examples[1].target
    page = open_page(link(address, source=source, target=own, model="rela", layer=2, head=2))
    shows(page, "rela")
    page.click("#swap")
    compared = page.locator(".change")
    compared.wait_for()
    with page.expect_download() as download:
        page.click("#export")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    other = open_page(file.as_uri())
    shows(other, "rela")
    assert other.locator("h3").inner_text() == "Layer 2, head 2"
    assert other.locator(".change").inner_text() == compared.inner_text()
    other.screenshot(path=pictures / "saved-comparison.png", full_page=True)
    other = open_page(f"{file.as_uri()}#model=rela&layer=2&head=1&type=cross")
    shows(other, "rela")
    assert other.locator("h3").inner_text() == "Layer 2, head 1"
