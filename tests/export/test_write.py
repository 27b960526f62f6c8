"""Exported models: the same greedy translations as the model folder they come from, with onnxruntime alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rela.cli import main
from rela.config import Config, DecodeConfig, ModelConfig
from rela.data.subwords import train_subwords
from rela.decoding.translate import Translator
from rela.errors import RunFailed
from rela.export.graphs import DecoderStepGraph, EncoderGraph
from rela.export.onnx_translator import OnnxTranslator, read_settings
from rela.export.write import check_graphs, export_model, settings_of
from rela.model.transformer import Transformer
from tests.tiny_models import subwords, tiny_folder, toy_pairs

SENTENCES = ["", *(source for source, _ in toy_pairs(30)), "the", "x" * 400]
"""An empty one, ordinary ones, one word, and one of 401 subwords, which is cut."""


def small_model(path: Path, **shape) -> Translator:
    """One layer, so that tracing takes little time; untrained, with weights large enough for translations to differ."""
    torch.manual_seed(2)
    options = {"width": 24, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 32, **shape}
    config = ModelConfig(vocabulary_size=300, max_length=60, threshold=0.1, **options)
    model = Transformer(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= 3.0 if parameter.dim() == 2 and "table" not in name else 1.0
    Translator(model, subwords(), Config(model=config), "cpu").save(path)
    return Translator.load(path, "cpu")


def greedy(translator: Translator, sentences: list[str]) -> list[str]:
    return translator.translate(sentences, beam=1)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Translator, Path]:
    """A model, and what `rela export --to onnx` makes of it."""
    folder = tmp_path_factory.mktemp("export")
    translator = small_model(folder / "model")
    with pytest.raises(SystemExit) as end:
        main(["export", str(folder / "model"), "--to", "onnx", "--out", str(folder / "onnx")])
    assert end.value.code == 0
    return translator, folder / "onnx"


@pytest.mark.filterwarnings("ignore:line .* has 401 subwords")
def test_greedy_translations_are_the_model_s(exported):
    translator, folder = exported
    expected = greedy(translator, SENTENCES)
    assert len(set(expected)) > 25
    assert OnnxTranslator(folder, threads=1).translate(SENTENCES) == expected
    assert OnnxTranslator(folder, threads=1, batch=1).translate(SENTENCES[:6]) == expected[:6]


def test_translations_are_held_to_what_the_config_says(exported):
    translator, folder = exported
    for options in (
        {"no_repeat_ngram": 1, "max_length_extra": 0, "max_length_ratio": 0.5},
        {"no_repeat_ngram": 2},
        {"min_length": 30, "max_length_extra": 0, "max_length_ratio": 0.1},
    ):
        config = replace(translator.config, decode=replace(translator.config.decode, **options))
        changed = Translator(translator.model, translator.subwords, config, "cpu")
        onnx = OnnxTranslator(folder, threads=1)
        onnx.settings = settings_of(config, "onnx")
        assert onnx.translate(SENTENCES[:-1]) == greedy(changed, SENTENCES[:-1])
    written = read_settings(folder, "onnx")
    assert written == settings_of(translator.config, "onnx") | {"sha256": written["sha256"]}


def test_a_translation_may_be_as_long_as_the_model_s(exported):
    """In float32, 0.29 times 100 is 29."""
    translator, folder = exported
    onnx, sources = OnnxTranslator(folder, threads=1), [[5] * length for length in range(1, 200)]
    for ratio in (0.29, 0.1, 2.1):
        decode = DecodeConfig(max_length_ratio=ratio, max_length_extra=0)
        onnx.settings = settings_of(replace(translator.config, decode=decode), "onnx")
        assert translator.pipeline.length_limits(sources, decode).tolist() == list(map(onnx.limit, sources))


def test_a_long_source_is_cut_with_a_warning(exported):
    with pytest.warns(UserWarning, match="line 1 has 401 subwords; only the first 59 are translated"):
        OnnxTranslator(exported[1], threads=1).translate(["x" * 400])


def test_translation_needs_no_torch(exported):
    """From the standard input, in a process that could not import PyTorch if it wanted to."""
    translator, folder = exported
    code = "import sys; sys.modules['torch'] = None; from rela.export.onnx_translator import main; main(sys.argv[1:])"
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        input="\n".join(SENTENCES[:5]) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == greedy(translator, SENTENCES[:5])


def test_the_folder_says_what_it_is(exported, tmp_path):
    settings = read_settings(exported[1], "onnx")
    assert (settings["max_length"], settings["vocabulary_size"]) == (60, 300)
    with pytest.raises(ValueError, match="is an export to onnx; wanted one to aot"):
        read_settings(exported[1], "aot")
    with pytest.raises(ValueError, match=r"has no export.json; wanted a folder that rela export wrote"):
        OnnxTranslator(tmp_path)


def test_files_of_other_exports_and_damaged_ones_are_refused(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "onnx")
    foreign = train_subwords((target for _, target in toy_pairs(200)), 300).model
    for name, data in (("subwords.model", foreign), ("encoder.onnx", b""), ("decoder_step.onnx", b"\0" * 100)):
        own = (folder / name).read_bytes()
        (folder / name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name} is damaged, or of another export than export.json beside it"):
            OnnxTranslator(folder)
        (folder / name).write_bytes(own)
    settings = json.loads((folder / "export.json").read_text())
    for change in ({"max_length": "60"}, {"max_length_ratio": None}, {"max_length_extra": -1}, {"sha256": 3}):
        (folder / "export.json").write_text(json.dumps({**settings, **change}))
        with pytest.raises(ValueError, match=rf"export.json is damaged: {next(iter(change))} is not what"):
            OnnxTranslator(folder)
    del settings["sha256"]
    (folder / "export.json").write_text(json.dumps(settings))
    assert OnnxTranslator(folder, threads=1).settings == settings, "as older versions wrote it"


def test_what_is_no_export_is_not_replaced(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"has no export\.json; it is not replaced"):
        export_model(tmp_path / "model", "onnx", tmp_path)
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds notes\.txt, which would be lost"):
        export_model(tmp_path / "model", "onnx", tmp_path)
    with pytest.raises(ValueError, match="lies in the model folder"):
        export_model(tmp_path / "model", "onnx", tmp_path / "model" / "exported")
    with pytest.raises(ValueError, match="format is 'tflite'; wanted one of onnx, torch-export, aot"):
        export_model(tmp_path / "model", "tflite", tmp_path / "out")


def test_a_graph_that_computes_something_else_is_refused(tmp_path):
    """Also one that is wrong only after the first step, and one that gives no numbers."""
    model = small_model(tmp_path / "model").model
    encoder, step = EncoderGraph(model), DecoderStepGraph(model)
    check_graphs(model, encoder, step)

    def forgets(*inputs):
        log_probs, keys, values = step(*inputs)
        return log_probs, keys * 0, values

    def is_nan(*inputs):
        log_probs, keys, values = step(*inputs)
        return log_probs * float("nan"), keys, values

    for wrong in (forgets, is_nan):
        with pytest.raises(RunFailed, match="log-probabilities are off by"):
            check_graphs(model, encoder, wrong)


@pytest.mark.parametrize("shape", [{"norm_first": True}, {"tied_embeddings": "none"}])
def test_the_graphs_are_the_model(tmp_path, shape):
    """Step by step the log-probabilities of Transformer.decode_step, which search uses."""
    translator = small_model(tmp_path / "model", **shape)
    model, ids = translator.model, [translator.subwords.encode(text) for text in SENTENCES[1:4]]
    batch = translator.pack_evenly([(sentence, []) for sentence in ids])
    sources = batch.source_packing.map(lambda cu: cu[:4])
    with torch.no_grad():
        state = model.start(model.encode(batch.source, batch.source_positions, sources), sources)
        lengths = sources.lengths.long()
        padded = sources.pad(batch.source[:, None, None], int(lengths.max()))[:, 0, :, 0]
        memory = EncoderGraph(model)(padded, lengths)
        cache = (memory[0][:, :, :, :0],) * 2
        for token in (1, 7, 20, 9):
            tokens = torch.full((3,), token)
            expected, state = model.decode_step(tokens, state)
            found, *cache = DecoderStepGraph(model)(tokens, *cache, *memory, lengths)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["rela-g", "softmax", "sparsemax", "entmax15", "topk:3", "relu2-g", "rela-g-gelu"])
def test_onnx_of_every_sort_of_weights(tmp_path, kind):
    translator = tiny_folder(tmp_path / "model", kind)
    folder = export_model(tmp_path / "model", "onnx", tmp_path / "onnx")
    assert OnnxTranslator(folder, threads=1).translate(SENTENCES[:-1]) == greedy(translator, SENTENCES[:-1])


@pytest.mark.campaign
@pytest.mark.parametrize("format", ["torch-export", "aot"])
def test_other_formats_give_the_model_s_translations(tmp_path, format):
    """Through the files that were written, loaded as PyTorch's own documentation loads them."""
    translator = small_model(tmp_path / "model")
    folder = export_model(tmp_path / "model", format, tmp_path / "out")
    assert json.loads((folder / "export.json").read_text())["format"] == format
    load = torch._inductor.aoti_load_package if format == "aot" else lambda path: torch.export.load(path).module()
    encoder, step = (load(str(folder / f"{name}.pt2")) for name in ("encoder", "decoder_step"))
    check_graphs(translator.model, encoder, step)


@pytest.mark.campaign
def test_a_thousand_sentences_of_a_trained_model(trained_model):
    """Identical greedy output on 1,000 sentences of the embedded corpus that the model has not seen."""
    translator = Translator.load(trained_model, "cpu")
    sentences = [source for source, _ in toy_pairs(1000, seed=77)]
    folder = export_model(trained_model, "onnx", trained_model.parent / "onnx")
    assert OnnxTranslator(folder).translate(sentences) == greedy(translator, sentences)
