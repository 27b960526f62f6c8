"""One large draw from the embedded corpus for all tests that count."""

import pytest

from rela.toy import ToyPair, generate


@pytest.fixture(scope="session")
def pairs() -> list[ToyPair]:
    return list(generate(20_000, 31))
