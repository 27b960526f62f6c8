"""Text to text: order, independence of the batch to the last bit, odd input, and scores that agree with search."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from rela.data.batching import pack
from rela.data.subwords import BOS, EOS, PAD, UNK
from rela.decoding.translate import PairTooLong, Translator
from rela.device import pick_device
from rela.model.folder import ModelFolderError


@pytest.mark.parametrize("kind", ["rela-g", "softmax"])
@pytest.mark.parametrize("beam", [1, 2, 3, 4, 8])
def test_translations_do_not_depend_on_the_batch(make_translator, sentences, kind, beam):
    """Words, scores and log-probabilities, to the last bit."""
    translator = make_translator(kind)
    options = {"nbest": beam, "beam": beam, "max_length_ratio": 0.4}
    alone = translator.translate_nbest(sentences, batch_tokens=1, **options)
    assert len({group[0].text for group in alone}) > 12, "the model says different things"
    for batch_tokens in (90, 10**6):
        assert translator.translate_nbest(sentences, batch_tokens=batch_tokens, **options) == alone


@pytest.mark.parametrize(("kind", "beam"), [("rela-g", 4), ("softmax", 1), ("sparsemax", 4), ("relu2-g", 2)])
def test_wide_models_do_not_depend_on_the_batch_either(make_translator, sentences, kind, beam):
    """Other sizes take other paths through the matrix library."""
    translator = make_translator(kind, width=512, heads=8, layers=1)
    some = sentences[4:8]
    alone = translator.translate_nbest(some, beam=beam, batch_tokens=1, max_length_extra=0)
    assert translator.translate_nbest(some, beam=beam, batch_tokens=10**6, max_length_extra=0) == alone


def cpu_information() -> str:
    """What Linux says about the processor; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8") if path.exists() else ""


ON_TWO_THREADS = """
import json, sys, torch
from rela.decoding.translate import Translator
assert torch.get_num_threads() == 2
sentences = json.load(sys.stdin)
for folder in sys.argv[1:]:
    translator = Translator.load(folder, "cpu")
    for beam in (1, 4):
        options = {"beam": beam, "max_length_ratio": 0.4}
        alone, together = (translator.translate_nbest(sentences, batch_tokens=size, **options) for size in (1, 10**6))
        assert alone == together, (folder, beam)
"""


def translate_on_two_threads(folders: list[Path], sentences: list[str], **settings: str) -> None:
    """In a process of its own, whose threads do not wait in a loop: on a busy machine that takes minutes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [sys.executable, "-c", ON_TWO_THREADS, *map(str, folders)],
        input=json.dumps(sentences),
        text=True,
        capture_output=True,
        env=environment | settings,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr


def test_nor_on_two_threads(make_translator, sentences, tmp_path):
    folders = [tmp_path / "rela-g", tmp_path / "softmax"]
    for folder in folders:
        make_translator(folder.name).save(folder)
    translate_on_two_threads(folders, sentences[3:9])


@pytest.mark.skipif("GenuineIntel" not in cpu_information(), reason="a setting of MKL for CPUs of Intel")
def test_nor_where_two_threads_share_long_sums(make_translator, sentences, tmp_path):
    """Over 1,024 numbers, which MKL divides among threads by the number of rows unless it is told not to."""
    make_translator(width=512, heads=8, layers=1).save(tmp_path / "wide")
    instructions = torch.backends.cpu.get_cpu_capability()  # AVX2 or AVX512, as MKL calls them
    translate_on_two_threads([tmp_path / "wide"], sentences[3:9], MKL_CBWR=f"{instructions},STRICT")


def test_order_is_preserved_and_windows_change_nothing(make_translator, sentences):
    translator = make_translator()
    whole = translator.translate(sentences, beam=2)
    assert whole == [translator.translate([line], beam=2)[0] for line in sentences]
    streamed = translator.translate_stream(iter(sentences), window=7, beam=2)
    assert [group[0].text for group in streamed] == whole


def test_a_stream_is_read_no_further_than_its_window(make_translator):
    read = []

    def lines():
        for number in range(10):
            read.append(number)
            yield f"dog {number}"

    stream = make_translator().translate_stream(lines(), window=2, beam=1)
    next(stream)
    assert read == [0, 1]
    next(stream)
    next(stream)
    assert read == [0, 1, 2, 3]


def test_beam_one_is_greedy(make_translator, sentences):
    """The most probable token after each teacher-forced prefix, until </s> or the limit."""
    translator = make_translator("softmax")
    for line in [line for line in sentences if line.strip()][:4]:
        source = translator.subwords.encode(line)
        limit = int(len(source) * 0.7 + 3)
        tokens: list[int] = []
        with torch.inference_mode():
            while len(tokens) < limit:
                states = translator.model(*pack([(source, tokens)]).inputs)
                logits = translator.model.logits(states[-1])
                logits[[PAD, BOS, UNK]] = -torch.inf
                token = int(logits.argmax())
                if token == EOS:
                    break
                tokens.append(token)
        assert translator.translate_nbest([line], beam=1)[0][0].tokens == tuple(tokens)


def test_search_and_score_agree(make_translator, sentences):
    """What search calls a translation's log-probability is what scoring gives it, if its text has the same subwords."""
    translator, agreed = make_translator(), 0
    lines = [line for line in sentences if line.strip()]
    for line, group in zip(lines, translator.translate_nbest(lines, nbest=4), strict=True):
        for item in group:
            if tuple(translator.subwords.encode(item.text)) != item.tokens:
                continue
            (scored,) = translator.score([line], [item.text])
            assert scored.log_prob == pytest.approx(item.log_prob, abs=1e-3)
            assert scored.pieces == (*translator.subwords.pieces(item.tokens), "</s>")
            assert item.score == pytest.approx(item.log_prob / ((6 + len(item.tokens)) / 6) ** 0.6, rel=1e-5)
            agreed += 1
    assert agreed > 5, "the test compared something"


def test_scores_are_the_cross_entropy_of_each_token(make_translator, sentences):
    translator = make_translator()
    sources, targets = sentences[:5], sentences[8:13]
    for source, target, scored in zip(sources, targets, translator.score(sources, targets), strict=True):
        batch = pack([(translator.subwords.encode(source), translator.subwords.encode(target))])
        with torch.inference_mode():
            logits = translator.model.logits(translator.model(*batch.inputs))
        wanted = -F.cross_entropy(logits, batch.target_out, reduction="none")
        assert scored.log_probs == pytest.approx(wanted.tolist(), abs=1e-4)
        assert scored.log_prob == pytest.approx(float(wanted.sum()), abs=1e-3)


def test_scores_do_not_depend_on_the_batch(make_translator, sentences):
    translator = make_translator()
    targets = sentences[::-1]
    together = translator.score(sentences, targets)
    assert [translator.score([s], [t])[0] for s, t in zip(sentences, targets, strict=True)] == together


def test_empty_lines_have_empty_translations(make_translator):
    translator = make_translator()
    texts = translator.translate(["", "The dog sleeps .", " \t ", "　"])
    assert [bool(text) for text in texts] == [False, True, False, False]
    assert translator.translate([]) == []
    assert translator.translate_nbest([""], nbest=3)[0][0].log_prob == 0.0
    (scored,) = translator.score(["The dog sleeps ."], [""])
    assert scored.pieces == ("</s>",)


@pytest.mark.filterwarnings("ignore:line . has no word in characters that the model knows")
@pytest.mark.parametrize(
    "line", ["🐕 sleeps 🛌🏽", "a\0b", "הכלב ישן .", "e\u0301\u200b\u2028x", "\ufeffdog", "dog\ttail", "\x1b[31m", "▁"]
)
def test_odd_characters_are_translated_like_any_others(make_translator, line):
    translator = make_translator()
    together = translator.translate(["The dog sleeps .", line])
    assert together == [translator.translate(["The dog sleeps ."])[0], translator.translate([line])[0]]
    assert not set(together[1]) & set("\n\t")
    assert translator.score([line], [line])[0].log_prob < 0


def test_a_line_without_a_known_character_is_named(make_translator):
    translator = make_translator()
    with pytest.warns(UserWarning, match="line 2 has no word in characters that the model knows"):
        assert len(translator.translate(["The dog sleeps .", "\u65e5\u672c"])) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.translate(["The \u65e5 sleeps .", "", ". !"])


def test_a_very_long_line_is_cut_with_a_warning(make_translator):
    translator = make_translator(max_length=40)
    long = "dog " * 5000
    with pytest.warns(UserWarning, match="line 2 has .* subwords; only the first 39 are translated"):
        texts = translator.translate(["The dog sleeps .", long, ""], beam=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert texts[0] == translator.translate(["The dog sleeps ."], beam=1)[0]
    assert texts[1]
    with pytest.raises(PairTooLong, match=r"target 'dog dog.* the model takes at most 39"):
        translator.score(["dog"], [long])


def test_translations_keep_to_their_longest_length(make_translator):
    translator = make_translator()
    source = "The dog sleeps ."
    subwords = len(translator.subwords.encode(source))
    for ratio, extra in ((1.0, 0), (2.0, 3), (0.1, 0)):
        for item in translator.translate_nbest([source], nbest=4, max_length_ratio=ratio, max_length_extra=extra)[0]:
            assert len(item.tokens) <= max(int(subwords * ratio) + extra, 1)
    short = make_translator(max_length=40)
    assert len(short.translate_nbest([source], beam=1, max_length_ratio=1e6)[0][0].tokens) <= 39


def test_nbest_lists_are_sorted_distinct_and_start_with_the_best(make_translator, sentences):
    translator = make_translator()
    lines = [line for line in sentences if line.strip()]
    best = translator.translate(lines)
    for first, group in zip(best, translator.translate_nbest(lines, nbest=4), strict=True):
        assert group[0].text == first
        assert len({item.tokens for item in group}) == len(group) == 4
        assert [item.score for item in group] == sorted((item.score for item in group), reverse=True)


def test_wrong_calls_are_refused(make_translator):
    translator = make_translator()
    for call in (
        translator.translate,
        translator.translate_nbest,
        lambda text: list(translator.translate_stream(text)),
    ):
        with pytest.raises(TypeError, match=r"^(sentences|lines) is one str; wanted a list of sentences"):
            call("The dog sleeps .")
    with pytest.raises(TypeError, match=r"^sources is one str; wanted a list"):
        translator.score("abc", "def")
    with pytest.raises(TypeError, match=r"^targets is one str; wanted a list"):
        translator.score(["a", "b", "c"], "def")
    for call in (
        lambda **options: translator.translate(["a"], **options),
        lambda **options: translator.score(["a"], ["b"], **options),
    ):
        with pytest.raises(TypeError, match=r"^there is no option beams; there are beam, length_penalty, .*seed, "):
            call(beams=4, beam=2)
    with pytest.raises(ValueError, match="nbest is 5; wanted at most the beam, 4"):
        translator.translate_nbest(["a"], nbest=5)
    for options, named in (({"nbest": 0}, "nbest"), ({"window": 0}, "window"), ({"beam": 0}, "beam")):
        with pytest.raises(ValueError, match=named):
            list(translator.translate_stream(["a"], **options))
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="'gpu'"):
        pick_device("gpu")


def test_a_model_of_nan_says_so(make_translator, subwords):
    broken = make_translator(width=16)
    with torch.no_grad():
        broken.model.output.weight[EOS] = torch.nan
    with pytest.raises(RuntimeError, match="weights"):
        broken.translate(["dog"])


def test_a_saved_translator_is_the_same_one(make_translator, sentences, tmp_path):
    translator = make_translator()
    translator.save(tmp_path / "model")
    again = Translator.load(tmp_path / "model", "cpu")
    assert again.config == translator.config
    assert again.translate(sentences[:10]) == translator.translate(sentences[:10])


def test_a_vocabulary_of_another_size_is_refused(make_translator, subwords, tmp_path):
    translator = make_translator()
    other = dataclasses.replace(translator.config.model, vocabulary_size=401)
    with pytest.raises(ModelFolderError, match="400 pieces and the Transformer 401"):
        Translator(translator.model, subwords, dataclasses.replace(translator.config, model=other))
    translator.save(tmp_path / "model")
    (tmp_path / "model" / "subwords.model").write_bytes(subwords.model[:100])
    with pytest.raises(ModelFolderError, match="is not the subword model"):
        Translator.load(tmp_path / "model")
