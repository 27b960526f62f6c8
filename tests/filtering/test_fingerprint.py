"""A fingerprint changes with what it is of, and with nothing else."""

import copy

import torch

from rela.decoding.translate import Translator
from rela.filtering.fingerprint import ENDS, aligner_fingerprint, file_fingerprint, model_fingerprint
from tests.tiny_models import BACK, tiny_joint, tiny_translator


def test_a_model_is_known_by_its_weights_and_settings():
    translator = tiny_translator("rela-g")
    model = copy.deepcopy(translator.model)
    same = Translator(model, translator.subwords, translator.config, "cpu")
    assert model_fingerprint(same) == model_fingerprint(translator)
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3
    assert model_fingerprint(same) != model_fingerprint(translator)
    assert model_fingerprint(tiny_translator("softmax")) != model_fingerprint(translator)


def test_an_aligner_is_known_by_its_weights():
    models = tiny_translator(), tiny_translator("rela-g", seed=2, languages=BACK)
    aligner = tiny_joint(*models)
    assert aligner_fingerprint(tiny_joint(*models)) == aligner_fingerprint(aligner)
    other = tiny_joint(*models)
    with torch.no_grad():
        other.module.source.bias[0] += 1e-3
    assert aligner_fingerprint(other) != aligner_fingerprint(aligner)


def test_a_file_is_known_by_its_size_and_ends(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    content = bytearray(b"x" * (2 * ENDS + 10))
    path.write_bytes(content)
    other.write_bytes(content)
    assert file_fingerprint(path) == file_fingerprint(other)
    for place in (0, len(content) - 1):
        changed = content.copy()
        changed[place] ^= 1
        other.write_bytes(changed)
        assert file_fingerprint(other) != file_fingerprint(path)
    other.write_bytes(content + b"x")
    assert file_fingerprint(other) != file_fingerprint(path)
