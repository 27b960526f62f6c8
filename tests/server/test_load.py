"""Many clients, some of which leave or stall: the others get the right answers, and the server stays as it was."""

import asyncio
import json
import os
import random

import pytest

from benchmarks.server import Client, Rude, metrics_of, put_load, serving
from rela.decoding.translate import Translator
from tests.tiny_models import toy_pairs

REQUESTS = int(os.environ.get("RELA_CAMPAIGN_REQUESTS", "100000"))
SECONDS = float(os.environ.get("RELA_CAMPAIGN_SECONDS", "600"))
CLIENTS = 64
MEMORY = "process_resident_memory_bytes"
TEXTS = [pair[0] for pair in toy_pairs(50, seed=8)]


def requests_of_all_sorts(translator, rude=0.05, slow=0.001):
    """Both interfaces, one text or several; a share of the clients leaves, and a small one stalls."""
    expected = dict(zip(TEXTS, translator.translate(TEXTS), strict=True))

    async def ask(client: Client, number: int) -> str | None:
        draw = random.Random(number)
        texts = draw.sample(TEXTS, draw.choice((1, 1, 1, 1, 3)))
        libre = draw.random() < 0.5
        asked = {"q": texts, "source": "en", "target": "de"} if libre else {"texts": texts}
        path, body = "/translate" if libre else "/v1/translate", json.dumps(asked).encode()
        chance = draw.random()
        if chance < rude:  # within its head, within its body, or just before the answer
            await client.leave(path, body, draw.randrange(1, 120 + len(body)))
            raise Rude
        if chance < rude + slow:
            answer = await client.stall(path, body, draw.randrange(1, 90 + len(body)))
            if answer and b" 408 " not in answer[:30]:
                return f"a client that stalled got {answer[:80]!r}"
            raise Rude
        status, answer = await client.post(path, body)
        if status != 200:
            return f"status {status}: {answer[:200]!r}"
        given = json.loads(answer)
        found = given["translatedText"] if libre else [best[0]["text"] for best in given["translations"]]
        return None if found == [expected[text] for text in texts] else f"{texts} became {found}"

    return ask


def test_a_small_load_with_rude_clients(client, translators, caplog):
    ask = requests_of_all_sorts(translators["en-de"], rude=0.2, slow=0.0)
    load = asyncio.run(put_load(str(client.base_url), ask, 120, 16, seconds=60))
    assert load.errors == []
    assert len(load.times) + load.rude == 120
    assert load.rude > 10
    assert caplog.text == ""


@pytest.mark.campaign
def test_a_large_load_leaves_the_server_as_it_was(folders):
    """RELA_CAMPAIGN_REQUESTS and RELA_CAMPAIGN_SECONDS bound it; memory is flat after a tenth of the requests."""
    ask = requests_of_all_sorts(Translator.load(folders["en-de"], "cpu"))
    with serving(str(folders["en-de"]), "--read-timeout", "3", "--batch", "128") as (address, process):
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
