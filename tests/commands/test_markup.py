"""`rela translate` of documents and with a glossary."""

from __future__ import annotations

import pytest

from rela.decoding.translate import Translator
from rela.markup.documents import translate_document
from rela.markup.glossary import Glossary
from rela.markup.translate import PassageTranslator
from tests.commands.cases import SOURCES

PAGE = "<p>The <b>dog</b> sleeps . The cat reads {name} .</p>\r\n<pre>as it is</pre>\n"


def test_a_document_is_translated_by_its_ending(call, model, tmp_path):
    (tmp_path / "page.html").write_bytes(PAGE.encode())
    wanted = translate_document(PAGE, "html", PassageTranslator(Translator.load(model, "cpu"), beam=2))
    assert call("translate", model, tmp_path / "page.html", "--beam", 2) == (0, wanted, "")
    out = tmp_path / "page.de.html"
    assert call("translate", model, tmp_path / "page.html", "--beam", 2, "--out", out) == (0, "", "")
    assert out.read_bytes() == wanted.encode()
    assert wanted.count("<b>") == wanted.count("</b>") == wanted.count("{name}") == 1
    assert "\r\n<pre>as it is</pre>\n" in wanted


def test_lines_stay_what_they_were(call, model, tmp_path):
    """A corpus is no document: .txt, no ending and --document lines are one sentence a line, as ever."""
    (tmp_path / "corpus.txt").write_text("\n".join(SOURCES[:3]) + "\n", encoding="utf-8")
    plain = call("translate", model, tmp_path / "corpus.txt", "--beam", 1)
    assert plain[1].splitlines() == Translator.load(model, "cpu").translate(SOURCES[:3], beam=1)
    (tmp_path / "corpus.md").write_text("\n".join(SOURCES[:3]) + "\n", encoding="utf-8")
    assert call("translate", model, tmp_path / "corpus.md", "--beam", 1, "--document", "lines") == plain


def test_terms_of_a_glossary_are_in_the_lines(call, fails, model, tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\tVierbeiner\n", encoding="utf-8")
    (tmp_path / "text").write_text("The dog sleeps .\n\nA cat {x} sleeps .\n", encoding="utf-8")
    options = ["--glossary", tmp_path / "terms.tsv", "--beam", 1]
    _, output, _ = call("translate", model, tmp_path / "text", *options)
    lines = output.split("\n")
    assert len(lines) == 4
    assert ["Vierbeiner" in line for line in lines] == [True, False, False, False]
    assert lines[2].count("{x}") == 1
    assert call("translate", model, tmp_path / "text", *options, "--window", 1)[1] == output
    glossary = Glossary.load(tmp_path / "terms.tsv")
    assert lines[0] == PassageTranslator(Translator.load(model, "cpu"), glossary, beam=1).translate_text(
        "The dog sleeps ."
    )
    fails("translate", model, tmp_path / "text", "--glossary", tmp_path / "gone", named="gone")


def test_a_document_from_the_standard_input(call, model, tmp_path, monkeypatch):
    (tmp_path / "page").write_bytes(PAGE.encode())
    with open(tmp_path / "page", encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        _, output, errors = call("translate", model, "--document", "html", "--beam", 1)
    assert not errors
    assert output.endswith("</p>\r\n<pre>as it is</pre>\n")


@pytest.mark.parametrize("option", [["--nbest", "2"], ["--scores"], ["--alignments"], ["--format", "jsonl"]])
def test_options_of_lines_are_refused(fails, model, tmp_path, option):
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    fails("translate", model, tmp_path / "page.html", *option, named=f"{option[0]} with a document (html)")


def test_what_is_wrong_is_said_in_one_line(fails, model, tmp_path):
    (tmp_path / "page.xml").write_text("<a><b></a>", encoding="utf-8")
    fails("translate", model, tmp_path / "page.xml", named="page.xml: not well-formed XML")
    (tmp_path / "page.html").write_bytes(b"<p>\n\xff")
    fails("translate", model, tmp_path / "page.html", named="page.html: line 2: not UTF-8")
    fails("translate", model, tmp_path / "page.html", "--document", "pdf", named="document is 'pdf'")
