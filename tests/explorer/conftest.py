"""Tiny models behind a real server on a free port, and a real browser where there is one."""

import contextlib
import copy
import dataclasses
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from rela.decoding.translate import Translator
from rela.evaluation.alignment import GoldLinks
from rela.explorer.examples import Example, guide_example, toy_examples
from rela.explorer.views import Views
from tests.tiny_models import tiny_translator, toy_pairs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def views() -> Views:
    """Two models, three pairs and the guide's; the gold of the first links each word to the one at its place."""
    pairs = toy_pairs(3)
    length = min(len(text.split()) for text in pairs[0])
    diagonal = frozenset((i, i) for i in range(length))
    gold = GoldLinks(diagonal - {(1, 1)}, diagonal)
    examples = [Example(*pairs[0], gold), *(Example(*pair) for pair in pairs[1:]), guide_example()]
    return Views({"rela": tiny_translator("rela-g"), "soft": tiny_translator("softmax")}, examples)


def two_directions() -> Views:
    """Views of a model and of one that translates back."""
    straight = tiny_translator("rela-g")
    data = dataclasses.replace(straight.config.data, source_language="de", target_language="en")
    back = Translator(straight.model, straight.subwords, dataclasses.replace(straight.config, data=data), "cpu")
    return Views({"en-de": straight, "de-en": back}, toy_examples()[:3])


@contextlib.contextmanager
def serving(views: Views):
    """The address of a server of these views, as `rela explore` starts it."""
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    from rela.explorer.server import MAX_BODY, create_app
    from rela.web.request_limiter import Limits, RequestLimiter
    from tests.web.serving import running

    with running(RequestLimiter(create_app(views), Limits(body=MAX_BODY))) as (address, _):
        yield address


@pytest.fixture(scope="session")
def address(views):
    with serving(views) as address:
        yield address


@pytest.fixture
def broken_address():
    """A server of a model whose weights are no numbers."""
    good = tiny_translator("rela-g")
    model = copy.deepcopy(good.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    with serving(Views({"broken": Translator(model, good.subwords, good.config, "cpu")})) as address:
        yield address


@pytest.fixture(scope="session")
def client(address):
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven by Playwright, which keeps an event loop in this thread while it is open."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need Playwright")
    if CHROMIUM is None:
        pytest.skip("browser tests need Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept, to be looked at."""
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pytest_terminal_summary(terminalreporter):
    """Say clearly what was skipped and why; a quiet run would show only a letter."""
    wanted = {"Chromium (apt-get install chromium)": CHROMIUM, "the package playwright": find_spec("playwright")}
    if missing := [name for name, found in wanted.items() if not found]:
        terminalreporter.write_line(f"The explorer's browser tests were skipped: they need {' and '.join(missing)}.")


@pytest.fixture
def open_page(browser):
    """Opens an address in a fresh page; at the end nothing may have failed and nothing may have left this machine."""
    contexts, complaints, requests = [], [], []

    def open_(url: str, width: int = 1280, dark: bool = False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.complaints, page.requests = complaints, requests
        page.goto(url)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    outside = [
        url for url in requests if not url.startswith(("http://127.0.0.1:", "file://", "blob:http://127.0.0.1:"))
    ]
    assert outside == []
    assert requests
