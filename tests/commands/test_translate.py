"""The commands that translate and score: what they print, and one line for what is wrong."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rela
from rela.alignment.choose import AlignmentChoice, save_choice
from rela.decoding.rerank import Reranker
from rela.decoding.translate import Translator
from rela.decoding.windows import WINDOW
from tests.commands.cases import SOURCES, TARGETS, make_model, shell
from tests.forking import Forked


def test_translations_come_line_by_line_in_order(call, model, texts):
    code, output, errors = call("translate", model, texts / "source.en", "--beam", 2)
    assert (code, errors) == (0, "")
    assert output.splitlines() == Translator.load(model, "cpu").translate(SOURCES, beam=2)
    assert call("translate", model, texts / "source.en", "--beam", 2, "--out", texts / "out.de")[:2] == (0, "")
    assert (texts / "out.de").read_text(encoding="utf-8") == output
    assert sorted(path.name for path in texts.iterdir()) == ["out.de", "source.en", "target.de"]


def test_compressed_text_is_read(call, model, texts):
    import gzip

    (texts / "source.en.gz").write_bytes(gzip.compress((texts / "source.en").read_bytes()))
    assert call("translate", model, texts / "source.en.gz", "--beam", 1) == call(
        "translate", model, texts / "source.en", "--beam", 1
    )


def test_a_table_and_tab_separated_pairs_are_read_as_two_files_are(call, fails, model, texts, monkeypatch):
    files = (texts / "source.en", texts / "target.de")
    table, pairs = texts / "pairs.jsonl", list(zip(SOURCES, TARGETS, strict=True))
    table.write_text("".join(json.dumps({"source": one, "target": other}) + "\n" for one, other in pairs))
    tabbed = "".join(f"{one}\t{other}\n" for one, other in pairs).encode()
    assert call("translate", model, table) == call("translate", model, files[0])
    for command in ("score", "align", "check"):
        wanted = call(command, model, *files)
        assert wanted[0] == 0
        assert call(command, model, table, table) == wanted
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(tabbed)))
        assert call(command, model, "-", "-") == wanted
    fails("score", model, table, files[1], named="are a table and another file")


def test_nbest_scores_and_alignments_are_columns(call, model, texts):
    _, output, _ = call("translate", model, texts / "source.en", "--nbest", 3, "--scores", "--alignments")
    rows = [line.split("\t") for line in output.splitlines()]
    assert len(rows) == 3 * len(SOURCES)
    assert [int(row[0]) for row in rows] == [number for number in range(len(SOURCES)) for _ in range(3)]
    wanted = Translator.load(model, "cpu").translate_nbest(SOURCES, nbest=3)
    for row, item in zip(rows, (item for group in wanted for item in group), strict=True):
        assert float(row[1]) == pytest.approx(item.score, abs=1e-5)
        assert row[2] == item.text
        words = len(SOURCES[int(row[0])].split()), len(item.text.split())
        links = [tuple(map(int, link.split("-"))) for link in row[3].split()]
        assert all(0 <= source < words[0] and 0 <= target < words[1] for source, target in links)


def test_links_of_heads_that_nobody_chose_are_warned_of(call, model, texts, tmp_path):
    chosen = Path(shutil.copytree(model, tmp_path / "chosen"))
    save_choice(chosen, AlignmentChoice(layer=0, heads=(1,), shifted=False))
    for folder, warned in ((model, True), (chosen, False)):
        _, _, errors = call("translate", folder, texts / "source.en", "--alignments")
        assert ("no heads were chosen" in errors) == warned


def test_json_lines_hold_everything(call, model, texts):
    _, output, _ = call("translate", model, texts / "source.en", "--format", "jsonl", "--nbest", 2, "--alignments")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [(row["line"], row["rank"]) for row in rows[:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rows[2]["source"] == SOURCES[1]
    assert rows[0].keys() == {"line", "rank", "source", "translation", "score", "log_prob", "alignment"}


def test_decoding_options_reach_the_search(call, model, texts):
    def translate(*options: object) -> list[str]:
        code, output, errors = call("translate", model, texts / "source.en", "--beam", 2, *options)
        assert (code, errors) == (0, "")
        return output.splitlines()

    translator = Translator.load(model, "cpu")
    plain = translate()
    assert translate("--min-length", 12) == translator.translate(SOURCES, beam=2, min_length=12) != plain
    assert translate("--no-repeat-ngram", 1) == translator.translate(SOURCES, beam=2, no_repeat_ngram=1) != plain
    begin = [" ".join(target.split()[: number % 3]) for number, target in enumerate(TARGETS)]
    (texts / "begin.de").write_text("\n".join(begin) + "\n", encoding="utf-8")
    found = translate("--prefixes", texts / "begin.de")
    assert found == translator.translate(SOURCES, beam=2, prefixes=begin)
    assert all(text.startswith(prefix) for text, prefix in zip(found, begin, strict=True))
    likely = translate("--sampling", "--top-k", 1)
    assert likely == translator.translate(SOURCES, beam=1), "of one token there is nothing to draw"
    assert translate("--sampling", "--top-p", 1e-6) == likely


def test_several_models_are_an_ensemble(call, fails, model, texts, tmp_path):
    other = make_model(tmp_path / "other", seed=5)
    code, output, _ = call("translate", model, other, texts / "source.en", "--beam", 2)
    assert code == 0
    assert output.splitlines() == rela.load([model, other], "cpu").translate(SOURCES, beam=2)
    assert output != call("translate", model, texts / "source.en", "--beam", 2)[1]
    larger = make_model(tmp_path / "larger", size=310)
    back = turn_round(make_model(tmp_path / "back", seed=5))
    fails("translate", model, back, texts / "source.en", named="the models translate en to de and de to en")
    fails("translate", model, larger, texts / "source.en", named="differ; an ensemble needs one vocabulary")
    fails("translate", texts / "source.en", named="is not a model folder")
    fails("translate", "-", named="MODEL... [SRC]")


def turn_round(folder: Path) -> Path:
    """The model folder, its config saying that it translates German to English."""
    config = (folder / "config.yaml").read_text()
    turned = config.replace("source_language: en", "source_language: de").replace(
        "target_language: de", "target_language: en"
    )
    assert turned != config
    (folder / "config.yaml").write_text(turned)
    return folder


def test_reranking_takes_a_model_of_the_other_direction(call, fails, model, texts, tmp_path):
    other = turn_round(make_model(tmp_path / "reverse", seed=5))
    options = ["--rerank", other, "--rerank-weight", 0.9, "--nbest", 2]
    _, output, _ = call("translate", model, texts / "source.en", *options)
    reranker = Reranker(Translator.load(other, "cpu"), 0.9)
    wanted = Translator.load(model, "cpu").translate_nbest(SOURCES, 2, rerank=reranker)
    assert [line.split("\t")[1] for line in output.splitlines()] == [item.text for group in wanted for item in group]
    fails("translate", model, texts / "source.en", "--rerank-weight", 0.9, named="--rerank MODEL too")
    _, _, said = call("translate", model, texts / "source.en", "--rerank", model)
    assert "rela: warning:" in said
    assert "says en to de, and the model's en to de; wanted the other direction" in said


def test_prefixes_that_cannot_be_kept_are_refused(fails, model, texts):
    for name, lines, named in (
        ("short", ["a"], "no prefix for line 2"),
        ("unknown", ["", "🐕", *[""] * 50], "prefix of line 2 has a character that the model does not know"),
        ("long", ["Hund " * 200, *[""] * 50], "at most 89"),
    ):
        (texts / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        fails("translate", model, texts / "source.en", "--prefixes", texts / name, named=named)
    (texts / "empty").write_text("\n", encoding="utf-8")
    (texts / "one").write_text("Hund\n", encoding="utf-8")
    fails("translate", model, texts / "empty", "--prefixes", texts / "one", named="line 1 is empty and has the prefix")
    options = ["--prefixes", texts / "one", "--engine", "graphs"]
    fails("translate", model, texts / "one", *options, named="it forces no prefix")


def test_sampling_is_repeated_by_its_seed(call, model, texts):
    def sample(seed: int) -> str:
        return call("translate", model, texts / "source.en", "--sampling", "--seed", seed, "--temperature", 0.8)[1]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


def test_odd_lines_keep_their_place(call, model, tmp_path):
    lines = ["", "The dog sleeps .", "🐕 שלום\u202e 😴", "   ", "dog " * 300]
    (tmp_path / "odd.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, output, errors = call("translate", model, tmp_path / "odd.en", "--alignments")
    assert code == 0
    rows = output.split("\n")[:-1]
    assert [bool(row.split("\t")[0]) for row in rows] == [False, True, True, False, True]
    assert errors.splitlines() == [line for line in errors.splitlines() if line.startswith("rela: warning: ")], (
        "warnings only"
    )
    assert "line 5 has" in errors
    assert "only the first 89 are translated" in errors
    assert rows[4].split("\t")[1], "links of what was translated"


def test_scores_agree_with_the_library_and_empty_pairs_have_none(call, model, tmp_path):
    sources, targets = [*SOURCES[:3], ""], [TARGETS[0], " ", *TARGETS[2:4]]
    (tmp_path / "s").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (tmp_path / "t").write_text("\n".join(targets) + "\n", encoding="utf-8")
    wanted = dict(zip((0, 2), Translator.load(model, "cpu").score(sources[0:3:2], targets[0:3:2]), strict=True))
    _, output, errors = call("score", model, tmp_path / "s", tmp_path / "t", "--tokens")
    assert errors.splitlines()[-1] == "rela: warning: 2 pairs have no score, the first: line 2: empty"
    lines = output.split("\n")[:-1]
    assert [bool(line) for line in lines] == [True, False, True, False]
    for number, scored in wanted.items():
        total, pieces = lines[number].split("\t")
        assert float(total) == pytest.approx(scored.log_prob, abs=1e-5)
        assert [piece.rpartition(":")[0] for piece in pieces.split(" ")] == list(scored.pieces)
    _, output, _ = call("score", model, tmp_path / "s", tmp_path / "t", "--format", "jsonl")
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["log_prob"] for row in rows] == [wanted[0].log_prob, None, wanted[2].log_prob, None]


def test_evaluation_prints_scores_with_signatures(call, texts):
    code, output, _ = call("evaluate", texts / "target.de", texts / "target.de")
    assert code == 0
    assert [line.rpartition(" = ")[2] for line in output.splitlines()] == ["100.00"] * 3
    assert "tok:13a" in output
    assert "multi-bleu.perl" in output
    _, output, _ = call("evaluate", texts / "source.en", texts / "target.de", "--format", "json")
    assert [row["name"] for row in json.loads(output)] == ["BLEU", "chrF2", "BLEU"]


def test_evaluation_with_a_baseline_edit_rate_and_comet(call, fails, texts):
    arguments = ("evaluate", texts / "target.de", texts / "target.de", "--ter", "--baseline", texts / "source.en")
    _, output, _ = call(*arguments)
    named = [line.partition("|")[0] for line in output.splitlines()]
    assert named == ["BLEU", "chrF2", "TER", "BLEU", "BLEU", "chrF2", "TER"]
    assert "bs:1000|seed:12345" in output
    assert "difference -" in output.splitlines()[-1]
    _, output, _ = call(*arguments, "--format", "json")
    compared = json.loads(output)[-1]
    assert (compared["name"], compared["value"]) == ("TER", 0.0)
    assert compared["p"] < 0.05 < compared["baseline"]
    target = texts / "target.de"
    fails("evaluate", target, target, "--comet-model", "x", named="--comet-model without effect")
    (texts / "one").write_text("eins\n")
    fails("evaluate", target, target, "--baseline", texts / "one", named="one has 1 lines")
    if importlib.util.find_spec("comet") is None:
        fails("evaluate", target, target, "--comet", target, named="pip install 'rela-attention[comet]'")


def test_info_prints_sizes_by_part(call, model):
    _, output, _ = call("info", model)
    counts = Translator.load(model, "cpu").model.parameter_counts()
    numbers = {line[:18].strip(): int(line[18:].replace(",", "")) for line in output.splitlines()[2:]}
    assert numbers == {**counts, "parameters": sum(counts.values())}
    assert "encoder rela-g, decoder rela-g, cross rela-g" in output


def test_a_dialogue_is_answered_line_by_line(model):
    (questions, ask), (answer, replies) = os.pipe(), os.pipe()
    process = Forked(["translate", model, "--window", 1, "--beam", 1], stdin=questions, stdout=replies, close=[ask])
    os.close(questions)
    os.close(replies)
    with open(ask, "w", encoding="utf-8") as stdin, open(answer, encoding="utf-8") as stdout:
        answers = []
        for source in SOURCES[:3]:
            stdin.write(source + "\n")
            stdin.flush()
            answers.append(stdout.readline().rstrip("\n"))  # before the input ends
        stdin.close()
        process.communicate(60)
    assert process.returncode == 0
    assert answers == Translator.load(model, "cpu").translate(SOURCES[:3], beam=1)


@pytest.mark.parametrize(
    "arguments",
    [
        "translate {model} --beam 1 --window 1 -",
        "translate {model} {windows}",
        "evaluate {text} {text}",
        "score {model} {text} {text}",
    ],
)
def test_a_reader_that_goes_away_is_no_error(model, texts, arguments):
    """As in `rela … | head -1`: here the pipe is closed before anything is written to it.

    Of two windows the first is answered, with nothing, while a thread encodes the second.
    """
    reader, writer = os.pipe()
    os.close(reader)
    windows = texts / "windows.en"
    windows.write_text("\n" * WINDOW + f"{SOURCES[0]}\n" * WINDOW, encoding="utf-8")
    words = arguments.format(model=model, text=texts / "target.de", windows=windows).split(" ")
    with open(texts / "source.en", "rb") as source:
        if "{windows}" in arguments:  # the thread must not keep Python from ending
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            line = [sys.executable, "-m", "rela", *words]
            process = subprocess.run(line, stdin=source, stdout=writer, stderr=subprocess.PIPE, env=environment)
            errors = process.stderr.decode()
        else:
            process = Forked(words, stdin=source.fileno(), stdout=writer)
            _, errors = process.communicate()
    os.close(writer)
    assert errors == ""
    assert process.returncode == 1


def test_text_is_utf8_whatever_the_locale_says(model):
    result = shell(
        [sys.executable, "-m", "rela", "translate", str(model), "--format", "jsonl", "--beam", "1"],
        input="Füße 🐕\n".encode(),
        env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"},
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.decode("utf-8"))["source"] == "Füße 🐕"


def test_wrong_command_lines(fails, model, texts):
    fails("nonsense", named="nonsense")
    fails("translate", model, "--beem", 4, named="--beem")
    fails("translate", named="MODEL")
    fails("translate", model, "--beam", "four", named="--beam")
    fails("translate", model, texts / "source.en", "--beam", 0, named="beam is 0")
    fails("translate", model, texts / "source.en", "--nbest", 9, named="nbest is 9; wanted at most the beam, 4")
    fails("translate", model, texts / "source.en", "--format", "xml", named="'xml'")
    fails("score", model, texts / "source.en", texts / "target.de", "--format", "xml", named="'xml'")
    fails("evaluate", texts / "target.de", texts / "target.de", "--format", "xml", named="'xml'")
    fails("translate", model, texts / "source.en", "--temperature", 2, named="--sampling too")
    fails("translate", model, texts / "source.en", "--no-sampling", "--seed", 2, named="--sampling too")
    fails("translate", model, texts / "source.en", "--top-k", 3, named="--top-k without effect")
    fails("translate", model, texts / "source.en", "--sampling", "--top-p", 1.5, named="top_p is 1.5")
    fails("translate", model, texts / "source.en", "--min-length", 500, named="min_length is 500")
    fails("translate", model, texts / "source.en", "--device", "tpu", named="'tpu'")


def test_missing_files(fails, model, tmp_path):
    gone = tmp_path / "gone"
    fails("translate", gone, named=str(gone))
    fails("translate", model, gone, named=str(gone))
    fails("score", model, gone, gone, named=str(gone))
    fails("evaluate", gone, gone, named=str(gone))
    fails("info", gone, named=str(gone))
    (tmp_path / "some").write_text("dog\n")
    fails("translate", model, tmp_path / "some", "--out", tmp_path / "no" / "folder", named="no/folder: No such file")
    fails("translate", model, tmp_path / "some", "--out", tmp_path, named=f"{tmp_path}: Is a directory")


def test_text_that_cannot_be_read_is_an_error_that_says_why(fails, call, model, texts):
    (texts / "latin1").write_bytes("ein Hund\nschläft\n".encode("latin-1"))
    (texts / "nul").write_bytes(b"a\0b\n")
    (texts / "short").write_text("ein Hund\n")
    (texts / "empty").write_text("")
    (texts / "long").write_text("dog " * 500 + "\n")
    fails("translate", model, texts / "latin1", "--out", texts / "out", named="latin1, line 2: not UTF-8")
    assert not list(texts.glob("out*")), "nothing half-written"
    fails("translate", model, texts / "nul", named="nul, line 1: NUL character")
    fails("score", model, texts / "latin1", texts / "latin1", named="latin1, line 2: not UTF-8")
    fails("score", model, texts / "source.en", texts / "short", named="unequal line counts")
    fails("score", model, texts / "short", texts / "source.en", named="unequal line counts")
    fails("evaluate", texts / "short", texts / "target.de", named="1 lines")
    fails("evaluate", texts / "output.jsonl", texts / "target.de", named="output.jsonl is a table; wanted lines")
    fails("evaluate", texts / "latin1", texts / "latin1", named="latin1, line 2: not UTF-8")
    fails("evaluate", texts / "empty", texts / "empty", named="no sentence")
    assert call("translate", model, texts / "empty") == (0, "", "")


@pytest.mark.parametrize("format", ["text", "jsonl"])
def test_a_pair_too_long_for_the_model_is_named_and_gets_no_score(call, model, tmp_path, format):
    lines = ["dog"] * 2050
    lines[2048] = "dog " * 500
    (tmp_path / "late").write_text("\n".join(lines) + "\n")
    code, output, errors = call("score", model, tmp_path / "late", tmp_path / "late", "--format", format)
    assert code == 0
    (last,) = errors.splitlines()
    assert last.startswith("rela: warning: 1 pair has no score, the first: line 2049: the source 'dog dog")
    scores = output.splitlines()
    assert len(scores) == 2050
    if format == "jsonl":
        scores = ["" if json.loads(line)["log_prob"] is None else line for line in scores]
    assert [number for number, score in enumerate(scores) if not score] == [2048]
    (tmp_path / "all").write_text("dog " * 500 + "\n")
    assert call("score", model, tmp_path / "all", tmp_path / "all")[:2] == (0, "\n")


def test_a_folder_of_a_run_stands_for_its_model(call, model, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(model, run / "best")
    code, _, errors = call("info", run)
    assert (code, errors) == (
        0,
        f"rela: warning: {run} has no finished model; its best one so far, {run / 'best'}, is taken\n",
    )
    shutil.copytree(model, run / "model")
    assert call("info", run) == call("info", model)
    assert Translator.load(run, "cpu").folder == run / "model"


def test_names_that_are_not_utf8(call, fails, model, texts):
    def odd(name: str) -> Path:
        return texts / os.fsdecode(name.encode() + b"\xff")

    shutil.copytree(model, odd("model"))
    shutil.copy(texts / "source.en", odd("source"))
    code, output, errors = call("translate", odd("model"), odd("source"), "--out", odd("out"), "--beam", 1)
    assert (code, output, errors) == (0, "", "")
    assert odd("out").read_text("utf-8").splitlines() == Translator.load(model, "cpu").translate(SOURCES, beam=1)
    assert call("average", odd("model"), "--out", odd("mean"))[0] == 0
    assert (odd("mean") / "model.safetensors").exists()
    fails("translate", model, odd("gone"), named="gone\\udcff: No such file")
    fails("info", odd("gone"), named="gone\\udcff is not a model folder")


def scaled(model: Path, folder: Path, factor: float) -> Path:
    """A copy of a model with one tensor multiplied."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(weights) if "cross" in name and "weight" in name)
    save_file({**weights, name: weights[name] * factor}, folder / "model.safetensors")
    return folder


EVERY_MODEL_COMMAND = (
    "translate {model} {source} --out {out}",
    "translate {model} {source} --sampling --out {out}",
    "translate {model} {source} --format jsonl --out {out}",
    "score {model} {source} {target} --out {out}",
    "align {model} {source} {target} --layer 2 --out {out}",
    "filter {model} {source} {target} --keep 0.5 --out {out}",
)


@pytest.mark.parametrize(
    ("factor", "named", "commands"),
    [
        (float("nan"), "cross", (*EVERY_MODEL_COMMAND, "average {model} --out {out}", "info {model}")),
        (float("inf"), "holds values that are no finite numbers", EVERY_MODEL_COMMAND[:1]),
        (1e38, "are the model's weights", EVERY_MODEL_COMMAND),
    ],
)
def test_numbers_that_are_none_end_every_command(fails, model, texts, factor, named, commands):
    bad = scaled(model, texts / "bad", factor)
    for command in commands:
        words = command.format(model=bad, source=texts / "source.en", target=texts / "target.de", out=texts / "o")
        fails(*words.split(" "), named=named)
        shutil.rmtree(texts / "o.parts", ignore_errors=True)
        assert not list(texts.glob("o*")), command


def test_settings_out_of_range_are_refused(fails, model, texts):
    for option, value, name in (
        ("--temperature", 1e39, "temperature"),
        ("--temperature", 1e-39, "temperature"),
        ("--temperature", "nan", "temperature"),
        ("--max-length-ratio", 1e19, "max_length_ratio"),
        ("--length-penalty", 500, "length_penalty"),
        ("--beam", 99999, "beam"),
        ("--nbest", 10**6, "nbest"),
    ):
        fails("translate", model, texts / "source.en", "--sampling", option, value, named=f"{name} is ")
    translator = Translator.load(model, "cpu")
    with pytest.raises(ValueError, match="nbest is 1000000; wanted 1 to 1,024"):
        translator.translate_nbest(SOURCES[:1], nbest=10**6, sampling=True)
    with pytest.raises(ValueError, match=r"temperature is 1e\+39; wanted 0.001 to 1,000"):
        translator.translate(SOURCES[:1], sampling=True, temperature=1e39)


def test_damaged_models(fails, model, texts, tmp_path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(model, tmp_path / name))

    truncated = copy("truncated")
    content = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(content[: len(content) // 2])
    for command in (
        ["translate", truncated, texts / "source.en"],
        ["info", truncated],
        ["average", model, truncated, "--out", tmp_path / "mean"],
    ):
        fails(*command, named="damaged or truncated")
    other = copy("other")
    (other / "subwords.model").write_bytes((make_model(tmp_path / "larger", size=310) / "subwords.model").read_bytes())
    fails("translate", other, texts / "source.en", named="is not the subword model")
    for name in ("model.safetensors", "config.yaml", "subwords.model"):
        folder = copy(f"without-{name}")
        (folder / name).unlink()
        fails("translate", folder, texts / "source.en", named=name)
    fails("average", model, tmp_path / "larger", "--out", tmp_path / "mean", named="one run")
    fails("average", model, model, "--out", tmp_path, named="not replaced")
    unknown = copy("unknown")
    text = (unknown / "config.yaml").read_text()
    (unknown / "config.yaml").write_text(text.replace("encoder_attention: rela-g", "encoder_attention: rela-x"))
    fails("info", unknown, named="rela-x")
    (unknown / "config.yaml").write_text(text.replace("width: 16", "width: 32"))
    fails("info", unknown, named="the config wants")
