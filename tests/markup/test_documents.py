"""Documents come out in their format: every tag once, what is no prose untouched, line for line."""

from __future__ import annotations

import random
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rela.decoding.translate import Translator
from rela.markup.documents import FORMATS, format_of, parse_document, read_document, translate_document
from rela.markup.glossary import Glossary
from rela.markup.translate import PassageTranslator
from rela.toy import generate
from tests.tiny_models import tiny_translator

MODELS = Path(__file__).resolve().parents[2] / "models"
TAG = re.compile(r"</?[a-z]+[^>]*>")
KEPT = ('<img src="x.png">', "<code>f(x) &lt; y</code>", "{name}", "%d", "🙂", "&nbsp;")
FAST = {"beam": 1, "max_length_ratio": 0.5, "max_length_extra": 1}


@cache
def passages(**options) -> PassageTranslator:
    return PassageTranslator(tiny_translator(), **FAST, **options)


def identity(text: str, format: str) -> str:
    """The document when each passage stays as it is."""
    document = parse_document(text, format)
    assert document.passages
    finished = [passages().finish(part, same(part.text), document.escape) for part in document.passages]
    return document.fill(finished)


def same(text: str):
    from rela.markup.translate import unchanged

    return unchanged(" ".join(text.split()))


class Checker(HTMLParser):
    """Raises where tags do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("img", "br"):
            self.waiting.append(tag)

    def handle_endtag(self, tag):
        assert self.waiting.pop() == tag


def tagged_sentence(words: list[str], draw: random.Random, depth: int = 0) -> str:
    """Words with inline tags around some of them, to three levels."""
    if depth < 3 and len(words) > 1 and draw.random() < 0.7:
        start = draw.randrange(len(words))
        end = draw.randrange(start + 1, len(words) + 1)
        name = draw.choice(["b", "i", "em", "span", "a", "u", "sub"])
        attribute = ' href="a?b=1&amp;c=2"' if name == "a" else ""
        left, inside, right = words[:start], words[start:end], words[end:]
        middle = f"<{name}{attribute}>{tagged_sentence(inside, draw, depth + 1)}</{name}>"
        point = draw.choice(["", *(f"{kept} " for kept in KEPT[:-1]), KEPT[-1]])
        return " ".join([*left, point + middle, *([tagged_sentence(right, draw, depth + 1)] if right else [])])
    return " ".join(words)


@pytest.mark.parametrize("model", ["untrained", pytest.param("en-de", marks=pytest.mark.campaign)])
def test_five_hundred_sentences_keep_every_tag_once(model: str):
    """Through a model whose words and links are arbitrary (nesting holds by construction), and through a real one."""
    through = passages() if model == "untrained" else PassageTranslator(Translator.load(MODELS / model, "cpu"))
    draw = random.Random(1)
    sentences = [tagged_sentence(pair.source.split(), draw) for pair in generate(500, seed=8)]
    page = "<html><body>" + "".join(f"<p>{sentence}</p>\n" for sentence in sentences) + "</body></html>"
    translated = translate_document(page, "html", through)
    found = re.findall(r"<p>(.*?)</p>\n", translated, re.DOTALL)
    assert len(found) == 500
    assert sum("<" in sentence for sentence in sentences) > 250
    for before, after in zip(sentences, found, strict=True):
        assert sorted(TAG.findall(before)) == sorted(TAG.findall(after))
        checker = Checker()
        checker.feed(after)
        checker.close()
        assert not checker.waiting
        for kept in KEPT:
            assert before.count(kept) == after.count(kept), (before, after)
    assert sum(before != after for before, after in zip(sentences, found, strict=True)) > 490


HTML = """<!DOCTYPE html>
<html lang="en"><head><title>A dog &amp; a cat</title><style>p > b { color: red }</style></head>
<body><!-- note --><h1 class='x'>The dog</h1>
<p>Click <b>here</b>, or <a href="a?b&amp;c">see <i>this</i> page</a>.<br>The next&nbsp;line.</p>
<pre>keep <b>me</b></pre><ul><li>One dog<li>Two dogs</ul>
<script>if (a < b && c) { document.write("<p>x</p>") }</script>
<p>An <i>open tag</p><p>and </i> its end</p><p translate="no">Stays</p></body></html>
"""


def test_html_comes_back_byte_for_byte_where_nothing_is_translated():
    assert identity(HTML, "html") == HTML


@pytest.mark.parametrize(
    "page",
    [
        '<p translate="no">Stays<p>Word</p>',
        '<p translate="no">Stays <b>here<div>Word</div>',
        '<body><p translate="no">Stays</b> here</body> Word',
        '<ul><li translate="no">Stays<ul><li>too<li>too</ul>too<li>Word</ul>',
        '<ul><li translate="no">Stays <p>too</ul>Word',
        '<dl><dt translate="no">Stays<dd>Word</dl>',
        '<table><tr><td class="notranslate">Stays<td>Word</table>',
        '<table><tr translate="no"><td>Stays<td>too<tr><td>Word</table>',
        '<table><tr><th translate="no">Stays</table>Word',
        '<select><option translate="no">Stays<option>Word</select>',
        '<div translate="no">Stays<div>too</div><p>too</div>Word',
        f'<li translate="no">Stays{"<b>" * 6_000}{"<td></td></i>" * 3_000}<p>too<li>Word',
    ],
)
def test_an_element_without_its_end_tag_stays_up_to_where_it_ends(page: str):
    """One that needs no end tag is ended by its next sibling or by its parent's end; what follows is translated."""
    texts = [passage.text for passage in parse_document(page, "html").passages if passage.has_words]
    assert [text.strip() for text in texts] == ["Word"]
    assert identity(page, "html") == page


def test_script_style_code_and_pre_stay():
    translated = translate_document(HTML, "html", passages())
    for kept in (
        "<style>p > b { color: red }</style>",
        "<pre>keep <b>me</b></pre>",
        '<script>if (a < b && c) { document.write("<p>x</p>") }</script>',
        '<p translate="no">Stays</p>',
        "<!-- note -->",
        "<h1 class='x'>",
    ):
        assert kept in translated
    assert re.findall(r"</?\w+", translated).sort() == re.findall(r"</?\w+", HTML).sort()
    assert "see" not in translated.split("</a>")[0].split("<a ")[1]


def test_html_reads_references_as_a_browser_does():
    """Names without a semicolon too; no character is written twice."""
    assert (
        identity("<p>AT&amp T &copy 2020 the dog &lt; a</p>", "html") == "<p>AT&amp; T &copy; 2020 the dog &lt; a</p>"
    )
    page = '<p translate="NO">The dog</p><p>A cat</p>'
    assert len(parse_document(page, "html").passages) == 1


XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE doc [<!ENTITY co "Company">]>
<doc><title lang="en">A <em>red</em> house &amp; garden</title>
  <empty/><p>The dog<![CDATA[ x<y ]]> of &co; sleeps &#233; well<br/>now</p><!-- c --><code>a b</code></doc>
"""


def test_xml_stays_well_formed():
    assert identity(XML, "xml").replace("é", "&#233;") == XML
    translated = translate_document(XML, "xml", passages())
    before, after = ElementTree.fromstring(XML), ElementTree.fromstring(translated)
    assert sorted(node.tag for node in before.iter()) == sorted(node.tag for node in after.iter())
    assert after.find("code").text == "a b"
    assert "&co;" in translated
    assert "<![CDATA[ x<y ]]>" in translated
    with pytest.raises(ValueError, match="not well-formed XML: mismatched tag: line 1"):
        parse_document("<a><b></a>", "xml")


RESOURCES = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- screen --><resources xmlns:xliff="urn:x">
    <string name="app" translatable="false">The app</string>
    <string name="a">Don\'t eat the \"dog\".\nIt is \u00e4 big\@ A &amp; B</string>
    <string name="b">by <xliff:g id="n">%1$s</xliff:g> today</string>
    <plurals name="c"><item quantity="one">%d dog</item></plurals>
</resources>
"""


def test_resources_of_android_keep_their_escapes():
    assert identity(RESOURCES, "xml") == RESOURCES.replace(r"\u00e4", "ä")
    document = parse_document(RESOURCES, "xml")
    assert document.passages[0].text == 'Don\'t eat the "dog". It is ä big A & B'
    assert "The app" not in [passage.text for passage in document.passages]
    translated = translate_document(RESOURCES, "xml", passages())
    assert not re.search(r"(?<!\\)['\"]", "".join(ElementTree.fromstring(translated).itertext()))
    for kept in (r"\n", r"\@", "%1$s", "%d"):
        assert translated.count(kept) == 1


def test_what_is_kept_in_xml_ends_where_its_element_does():
    text = "<d><p translate='no'>Stays <b>x</b></p><code>a b</code>\n<p/><p>The dog</p></d>"
    assert [passage.text for passage in parse_document(text, "xml").passages] == ["The dog"]


MARKDOWN = """---
title: The dog
---
# The *red* house

Some **bold words** and a [link](http://x.y/z_a "t") with `code` in it.
A hard break\\
and more.

- one dog
- [ ] two dogs
  1. nested *item*

> a quote

| a dog | b |
|---|:-:|
| **c** d | e |

```python
code = "stays"
```

    indented code

[ref]: http://x
"""


def test_markdown_keeps_its_markers():
    assert identity(MARKDOWN, "md") == MARKDOWN.replace(" in it.\nA hard", " in it. A hard")
    translated = translate_document(MARKDOWN, "md", passages())
    for kept in (
        "title: The dog",
        '](http://x.y/z_a "t")',
        "`code`",
        'code = "stays"',
        "    indented code",
        "|---|:-:|",
    ):
        assert translated.count(kept) == 1
    shapes = [re.match(r"[\s#>|-]*(\[ \])?(\d\.)?", line)[0].strip() for line in translated.splitlines()]
    wanted = [re.match(r"[\s#>|-]*(\[ \])?(\d\.)?", line)[0].strip() for line in identity(MARKDOWN, "md").splitlines()]
    assert shapes == wanted
    assert translated.count("**") % 2 == 0, "stress on no word is not written: Markdown has none"


KEPT_MARKDOWN = """+++
title = "The dog"
+++
<!-- A comment
of two lines -->
<pre>
the dog
</pre>
<img src="x.png"
     alt="The dog">

10. A dog:
    ```sh
    echo the dog
    ```

    A second paragraph.

> ```
> the dog
> ```
> [!NOTE]

$$
the dog
$$

[![Build the dog](http://x/y.svg)](http://x/z)

[a cat]: http://x/cat
"""


def prose_of(text: str) -> list[str]:
    return [passage.text.strip() for passage in parse_document(text, "md").passages]


def test_what_is_no_prose_stays_in_markdown():
    document = parse_document(KEPT_MARKDOWN, "md")
    assert [passage.text for passage in document.passages] == ["A dog:", "A second paragraph."]
    assert identity(KEPT_MARKDOWN, "md") == KEPT_MARKDOWN
    assert identity("the $a * b * c$ dog[^1] <!-- c --> eats\n\n[^1]: A note.\n", "md").count("$a * b * c$") == 1
    assert identity("Press <kbd>Ctrl</kbd>+<kbd>C</kbd> now\n", "md") == "Press <kbd>Ctrl</kbd>+<kbd>C</kbd> now\n"
    assert prose_of("a <code>dog</code> b <var x='y'>the *cat*</var> c") == ["a b c"]
    assert prose_of("> one dog\n> sleeps\n>\n> two") == ["one dog sleeps", "two"]
    assert prose_of("Dog\n: an animal\n\n[^1]: A note.") == ["Dog", "an animal", "A note."]
    assert prose_of("text\nName | Age\n--- | ---\ndog | 3\ncat | 4\n\nend") == [
        "text",
        "Name",
        "Age",
        "dog",
        "cat",
        "end",
    ]


@pytest.mark.parametrize("text", ["5\n**\n🙂\r\n", "> 1\n> 2\n3 | 4\n--|--\n", "1.\n*<!-- a\nb -->", "`a`- \n*1 2\n\n"])
def test_lines_of_markdown_without_words_stay_lines(text):
    document = parse_document(text, "md")
    assert not document.passages
    assert document.fill([]) == text


def test_links_by_their_own_text_keep_their_address():
    """Markdown finds the address by the text, which is another when it is translated."""
    text = "See [A Cat][], [a cat] and [no link **here**].\n\n[a cat]: http://x/cat\n"
    assert identity(text, "md").startswith("See [A Cat][A Cat], [a cat][a cat] and [no link **here**].")


SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
The <i>dog</i>
sleeps in the garden .

2
00:00:03,000 --> 00:00:04,000
- Yes dog
- No dog
"""


def test_subtitles_keep_times_and_lines():
    assert identity(SUBTITLES.replace("</i>\n", "</i> "), "srt") == SUBTITLES.replace("</i>\n", "</i> ")
    translated = translate_document(SUBTITLES, "srt", passages())
    times = re.compile(r"^\d+$|-->.*$", re.MULTILINE)
    assert times.findall(translated) == times.findall(SUBTITLES)
    assert translated.count("<i>") == translated.count("</i>") == 1
    assert len(translated.splitlines()) <= len(SUBTITLES.splitlines())
    assert re.findall("^(?:- |– )", translated, re.MULTILINE) == ["- ", "- "]


CATALOGUE = r"""# Translators
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"

#: a.c:1
#, c-format
msgid "The \"dog\" sleeps in %s"
msgstr ""

msgctxt "menu"
msgid ""
"two lines\n"
"of text\n"
msgstr ""

msgid "done"
msgstr "fertig"

msgid "one dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""


def test_catalogues_get_what_they_lack():
    filled = identity(CATALOGUE, "po")
    assert 'msgid "The \\"dog\\" sleeps in %s"\nmsgstr "The \\"dog\\" sleeps in %s"' in filled
    assert 'msgstr ""\n"two lines\\n"\n"of text\\n"\n' in filled
    assert 'msgstr[0] "one dog"\nmsgstr[1] "%d dogs"\n' in filled
    translated = translate_document(CATALOGUE, "po", passages())
    assert 'msgstr "fertig"' in translated
    assert translated.endswith('#~ msgid "old"\n#~ msgstr ""\n')
    assert '"Content-Type: text/plain; charset=UTF-8\\n"' in translated
    assert re.findall("^(?!msgstr).*$", identity(CATALOGUE, "po"), re.MULTILINE)
    assert translated.count("%s") == 2
    assert translated.count("%d") == 2
    with pytest.raises(ValueError, match="line 1: '\"x\"' continues no message"):
        parse_document('"x"\n', "po")


def test_messages_keep_tags_keys_and_plural_forms():
    filled = identity('msgid "Click <b>here</b> or <ui:key n=\\"1\\">Open</ui:key><br>now"\r\nmsgstr ""\r\n', "po")
    assert filled.endswith('msgstr "Click <b>here</b> or <ui:key n=\\"1\\">Open</ui:key><br>now"\r\n')
    for message, shown, key in [("_Save as", "Save as", "_"), ("E_xit", "Exit", "_"), ("&Open", "Open", "&")]:
        text = f'msgid "{message}"\nmsgstr ""\n'
        assert [passage.text for passage in parse_document(text, "po").passages] == [shown]
        assert re.search(rf'msgstr "[^a-z]*{key}[^\W\d_]', translate_document(text, "po", passages()), re.IGNORECASE)
    for message in ("file_name of R&D", "_a _b", "A &amp; b", "%s_x"):
        assert parse_document(f'msgid "{message}"\nmsgstr ""\n', "po").passages[0].text.count("_") == message.count("_")
    one = '"Plural-Forms: nplurals=1; plural=0;\\n"\n\nmsgid "dog"\nmsgid_plural "dogs"\nmsgstr[0] ""\n'
    assert identity('msgid ""\nmsgstr ""\n' + one, "po").endswith('msgstr[0] "dogs"\n')
    assert '""\r\n"a\\n"\r\n"b"\r\n' in identity('msgid "a\\nb"\r\nmsgstr ""\r\n', "po")


def test_a_byte_order_mark_changes_nothing():
    for text, format in [(MARKDOWN, "md"), (CATALOGUE.split("\n", 1)[1], "po"), (SUBTITLES, "srt"), (XML, "xml")]:
        assert identity("\ufeff" + text, format) == "\ufeff" + identity(text, format)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("html", '<html><meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">dog'),
        ("xml", "<?xml version='1.0' encoding='iso-8859-1'?><d>dog</d>"),
        ("po", 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=iso-8859-1\\n"\n'),
    ],
)
def test_another_declared_encoding_is_refused(format, text, tmp_path):
    """The file would come out in UTF-8 and be read as what it declares."""
    (tmp_path / "x").write_text(text)
    with pytest.raises(ValueError, match="declares the encoding iso-8859-1; wanted a file in UTF-8"):
        read_document(tmp_path / "x", format)
    (tmp_path / "x").write_text(text.replace("iso-8859-1", "utf-8"))
    assert read_document(tmp_path / "x", format) == text.replace("iso-8859-1", "utf-8")


PLAIN = "  The dog {name} 🙂 sees https://a.b/c?d=1&e=2 .\n\n\tA cat of me@x.org\r\n42\nno end"


def test_lines_stay_lines():
    assert identity(PLAIN, "txt") == PLAIN
    translated = translate_document(PLAIN, "txt", passages())
    assert [line[: len(line) - len(line.lstrip())] for line in translated.split("\n")] == ["  ", "", "\t", "", ""]
    for kept in ("{name}", "🙂", "https://a.b/c?d=1&e=2", "me@x.org", "\r\n42\n"):
        assert translated.count(kept) == 1
    tagged = translate_document("a <b>dog</b>\n<i>no end\n", "tagged", passages())
    assert tagged.count("\n") == 2
    assert TAG.findall(tagged) == ["<b>", "</b>", "<i>"]


def test_formats_by_ending(tmp_path):
    assert format_of("a/page.HTML") == "html"
    assert format_of("x.txt") is None
    with pytest.raises(ValueError, match="format is 'pdf'; wanted one of html"):
        parse_document("x", "pdf")
    (tmp_path / "x").write_bytes(b"a\n\xff")
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        read_document(tmp_path / "x", "txt")
    for format in FORMATS:
        assert translate_document("", format, passages()) == "" if format != "xml" else True


def test_terms_are_kept_in_documents():
    glossary = Glossary({"dog": "Vierbeiner"})
    translator = PassageTranslator(tiny_translator(), glossary, **FAST)
    translated = translate_document("<p>The <b>dog</b> sees a Dog .</p><code>dog</code>", "html", translator)
    assert translated.count("Vierbeiner") == 2
    assert "<code>dog</code>" in translated
    assert isinstance(translator.translator, Translator)


ATTACKS = {
    "html": [
        "<b>" * 3000 + "dog" + "</b>" * 3000,
        "<b>dog " * 3000,
        "dog</b></i> " * 3000,
        "<b><i>dog</b> cat</i> " * 500,
        "a" * 200_000,
        "<",
        "<p",
        "<!-- dog",
        "<code>dog",
        "<script>dog</p>",
        "&bogus; dog &#xffffffff; &",
        "<a href='<b>'>dog</a>",
        "<![CDATA[ dog ]]>",
        "<![ dog",
        "<p><![<b>dog</b> dog</p>",
        "<![if !IE]>dog<![endif]>",
    ],
    "md": [
        "*" * 5000 + "dog",
        "*a " * 3000,
        "[" * 5000 + "dog",
        "`" * 5000 + "dog",
        "*_" * 2000 + "dog" + "_*" * 2000,
        "```\ndog",
    ],
    "srt": ["1\n00:00:01,000 --> 00:00:02,000", "dog", "\n\n\n"],
    "po": ['msgid "dog"\n', 'msgstr ""\n', 'msgid "a\\\\"\nmsgstr ""\n'],
    "xml": ["<d>" * 3000 + "dog" + "</d>" * 3000, "<d>dog &amp; <e/>cat</d>"],
}


@pytest.mark.parametrize(("format", "text"), [(format, text) for format, texts in ATTACKS.items() for text in texts])
def test_odd_documents_lose_nothing(format, text):
    """What the parsers make of them, put together again with each passage as it is, is the document."""
    document = parse_document(text, format)
    kept = document.fill([passages().finish(part, same(part.text), document.escape) for part in document.passages])
    if format in ("html", "xml"):
        assert TAG.findall(kept) == TAG.findall(text)
    if format != "po":
        assert kept.count("dog") == text.count("dog")
