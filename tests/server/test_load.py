"""Many clients, some of which leave or stall: the others get the right answers, and the server stays as it was."""

import asyncio
import json
import os
import random

import pytest
import torch

from benchmarks.server import Client, Unanswered, metrics_of, put_load, serving
from rela.config import Config, DecodeConfig, ModelConfig
from rela.decoding.translate import Translator
from rela.model.transformer import Transformer
from tests.tiny_models import subwords, toy_pairs

REQUESTS = int(os.environ.get("RELA_CAMPAIGN_REQUESTS", "100000"))
SECONDS = float(os.environ.get("RELA_CAMPAIGN_SECONDS", "600"))
CLIENTS = 64
MEMORY = "process_resident_memory_bytes"
TEXTS = [pair[0] for pair in toy_pairs(50, seed=8)]


def smallest_model(path):
    """One layer of width 8 that writes two tokens: the time goes to requests, which are what is tried here."""
    shape = ModelConfig(vocabulary_size=300, width=8, heads=1, encoder_layers=1, decoder_layers=1, feed_forward=8)
    brief = DecodeConfig(beam=1, max_length_ratio=0.1, max_length_extra=1)
    torch.manual_seed(1)
    Translator(Transformer(shape), subwords(), Config(model=shape, decode=brief), "cpu").save(path)
    return path


def requests_of_all_sorts(translator, texts=TEXTS, unanswered=0.05, slow=0.001):
    """Both interfaces, one text or several; a share of the clients leaves, and a small one stalls."""
    expected = dict(zip(texts, translator.translate(texts), strict=True))

    async def ask(client: Client, number: int) -> str | None:
        draw = random.Random(number)
        given = draw.sample(texts, draw.choice((1, 1, 1, 1, 3)))
        libre = draw.random() < 0.5
        asked = {"q": given, "source": "en", "target": "de"} if libre else {"texts": given}
        path, body = "/translate" if libre else "/v1/translate", json.dumps(asked).encode()
        chance = draw.random()
        if chance < unanswered:  # within its head, within its body, or just before the answer
            await client.leave(path, body, draw.randrange(1, 120 + len(body)))
            raise Unanswered
        if chance < unanswered + slow:
            answer = await client.stall(path, body, draw.randrange(1, 90 + len(body)))
            if answer and b" 408 " not in answer[:30]:
                return f"a client that stalled got {answer[:80]!r}"
            raise Unanswered
        status, answer = await client.post(path, body)
        if status != 200:
            return f"status {status}: {answer[:200]!r}"
        reply = json.loads(answer)
        found = reply["translatedText"] if libre else [best[0]["text"] for best in reply["translations"]]
        return None if found == [expected[text] for text in given] else f"{given} became {found}"

    return ask


def test_a_small_load_with_clients_that_disconnect(client, translators, caplog):
    ask = requests_of_all_sorts(translators["en-de"], unanswered=0.2, slow=0.0)
    load = asyncio.run(put_load(str(client.base_url), ask, 120, 16, seconds=60))
    assert load.errors == []
    assert len(load.times) + load.unanswered == 120
    assert load.unanswered > 10
    assert caplog.text == ""


@pytest.mark.campaign
def test_a_large_load_leaves_the_server_as_it_was(tmp_path):
    """RELA_CAMPAIGN_REQUESTS and RELA_CAMPAIGN_SECONDS bound it; memory is flat after a tenth of the requests."""
    model = smallest_model(tmp_path / "model")
    texts = sorted({" ".join(text.split()[:3]) for text in TEXTS})
    ask = requests_of_all_sorts(Translator.load(model, "cpu"), texts)
    with serving(str(model), "--read-timeout", "3", "--batch", "128") as (address, process):
        warm = asyncio.run(put_load(address, ask, REQUESTS // 10, CLIENTS, SECONDS / 10))
        before = metrics_of(address)[MEMORY]
        load = asyncio.run(put_load(address, ask, REQUESTS - REQUESTS // 10, CLIENTS, 0.9 * SECONDS))
        after = metrics_of(address)
        process.terminate()
        _, error = process.communicate(timeout=60)
    growth = after[MEMORY] - before
    print(f"warm-up: {warm}\nthen: {load}\nmemory {before / 2**20:.0f} MiB, then {growth / 2**20:+.1f} MiB")
    assert warm.errors == load.errors == []
    assert (process.returncode, error) == (0, "")
    assert after["rela_requests_in_flight"] == 0
    assert after['rela_sentences_waiting{model="en-de"}'] == 0
    assert growth < 0.05 * before
