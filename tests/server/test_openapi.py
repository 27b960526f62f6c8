"""Requests made from the server's own description are answered as that description says."""

import os

import pytest

from rela.server.app import TranslationServer
from rela.server.settings import ServerSettings
from tests.server.conftest import serving

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from schemathesis.specs.openapi.checks import positive_data_acceptance  # noqa: E402

EXAMPLES = int(os.environ.get("RELA_CAMPAIGN_EXAMPLES", "300"))
"""Requests to each operation in the campaign."""


@pytest.fixture(scope="module")
def schema(translators):
    """The description as a server hands it out."""
    with serving(TranslationServer(translators, ServerSettings(max_texts=16, queue=64))) as client:
        yield schemathesis.openapi.from_dict(client.get("/openapi.json").json()), str(client.base_url)


def attack(schema, count):
    """Send so many requests to each operation, half of them as described; every answer must be as described too.

    Some that are as described may be refused: limits of the server and of a model are not part of the description.
    """
    description, address = schema
    operations = [result.ok() for result in description.get_all_operations()]
    assert len(operations) >= 9
    for operation in operations:
        modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
        cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in modes])

        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def answered_as_described(case):
            case.call_and_validate(base_url=address, excluded_checks=[positive_data_acceptance])

        answered_as_described()


def test_some_requests_are_answered_as_described(schema):
    attack(schema, 8)


@pytest.mark.campaign
def test_many_requests_are_answered_as_described(schema):
    attack(schema, EXAMPLES)
