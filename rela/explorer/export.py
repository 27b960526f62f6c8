"""The explorer as one HTML file: page, styles, scripts and data together, nothing to fetch and nothing to run."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from rela.explorer.payload import View
from rela.files import write_text

PAGE = "index.html"
STYLE_LINK = re.compile(r'<link rel="stylesheet" href="static/([\w.-]+)">')
ICON_LINK = re.compile(r'<link rel="icon" href="static/([\w.-]+)">')
SCRIPT_LINK = re.compile(r'<script src="static/([\w.-]+)" defer></script>')
DATA_PLACE = '<script type="application/json" id="saved"></script>'
COMPARED = ("model", "target", "forced", "log_prob", "null_rate")
"""What is kept of a view whose target was exchanged."""
POLICY_PLACE = "<!-- policy -->"


def static_file(name: str) -> str:
    """A file of the page, as text."""
    return (files("rela.explorer") / "static" / name).read_text(encoding="utf-8")


def linked_files() -> dict[str, str]:
    """The files that the page asks for, each with its media type."""
    page = static_file(PAGE)
    links = ((STYLE_LINK, "text/css"), (SCRIPT_LINK, "text/javascript"), (ICON_LINK, "image/svg+xml"))
    return {name: media_type for pattern, media_type in links for name in pattern.findall(page)}


def export_page(start: dict[str, Any], views: Sequence[View], before: Sequence[View] = (), address: str = "") -> str:
    """One HTML file with these views, made of the same files that the server hands out.

    `before` are the same models' views before the target was exchanged for another sentence's, and `address` is what
    the file shows first.
    Text comes as JSON in a block the browser does not run, and only the scripts whose hashes the file names may run.
    """
    page = static_file(PAGE)
    style, script = ("\n".join(map(static_file, link.findall(page))) for link in (STYLE_LINK, SCRIPT_LINK))
    for text, end in ((style, "</style"), (script, "</script")):
        if end in text:
            raise ValueError(f"a file of the page holds {end}>, which would end the block it is put into")
    policy = (
        f"default-src 'none'; script-src {content_hash(script)}; style-src {content_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    shown = {view.model for view in views}
    data = {
        "start": {**start, "models": [model for model in start["models"] if model["name"] in shown], "examples": []},
        "views": [view.to_dict() for view in views],
        "before": [{name: getattr(view, name) for name in COMPARED} for view in before],
        "address": address,
    }
    for link in (STYLE_LINK, SCRIPT_LINK, ICON_LINK):
        page = link.sub("", page)
    page = page.replace(POLICY_PLACE, f'<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)
    head, foot = page.split("</head>", 1)
    body, end = foot.rsplit("</body>", 1)
    body = body.replace(DATA_PLACE, f'<script type="application/json" id="saved">{json_block(data)}</script>', 1)
    return f"{head}<style>{style}</style>\n</head>{body}<script>{script}</script>\n</body>{end}"


def json_block(data: Any) -> str:
    """JSON that may stand inside a script element: no <, > or &, so nothing in it can end or open one."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def content_hash(text: str) -> str:
    """How a Content-Security-Policy names a script or style it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def write_export(path: Path, start: dict[str, Any], views: Sequence[View]) -> None:
    """Write the file, whole or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))  # the name that was asked for
    write_text(path, export_page(start, views))
