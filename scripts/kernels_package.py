"""The attention library with its Triton kernels as a package for the `kernels` hub.

    python -m scripts.kernels_package --out dist/kernels

writes `build/torch-universal`: pure Python and Triton, for every release of torch and every backend. `kernels` loads a
package under a name of its own choosing, so imports become relative and operators get a namespace of their own; the
installed `rela` and the package can be used side by side.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import tomllib
from pathlib import Path

from rela.files import replacing_folder

ROOT = Path(__file__).parents[1]
PARTS = ("attention", "kernels", "device.py", "packing.py")
"""What the attention library consists of."""
VARIANT = "build/torch-universal"
NAME = "rela-attention"


def sources() -> dict[str, str]:
    """The modules of the library, by their path inside `rela`."""
    files = [file for part in PARTS for file in [ROOT / "rela" / part, *sorted((ROOT / "rela" / part).rglob("*.py"))]]
    return {
        file.relative_to(ROOT / "rela").as_posix(): file.read_text(encoding="utf-8") for file in files if file.is_file()
    }


def relative(path: str, text: str) -> str:
    """A module with relative imports of `rela` in place of absolute ones."""
    dots = "." * (path.count("/") + 1)
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        number = getattr(node, "lineno", 1) - 1
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rela" and not node.level:
            inside = str(node.module).removeprefix("rela").removeprefix(".")
            lines[number] = lines[number].replace(f"from {node.module} import", f"from {dots}{inside} import", 1)
        elif isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "rela" for alias in node.names):
            # only for what importing it does: nothing in the library calls a function by its whole name
            if len(node.names) > 1 or node.names[0].asname:
                raise ValueError(f"{path}:{node.lineno} imports several modules or renames one; wanted one, as it is")
            inside, _, last = node.names[0].name.removeprefix("rela.").rpartition(".")
            whole = f"import {node.names[0].name}"
            lines[number] = lines[number].replace(whole, f"from {dots}{inside} import {last} as _{last}", 1)
    return "".join(lines)


def own_namespace(text: str, namespace: str) -> str:
    """A module whose operators are in a namespace of the package."""
    text = text.replace("rela::", f"{namespace}::").replace('Library("rela"', f'Library("{namespace}"')
    return re.sub(r"\btorch\.ops\.rela\b", f"torch.ops.{namespace}", text)


def left_over(path: str, text: str) -> list[str]:
    """The absolute imports of `rela` in a module, of which there must be none."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)]
        found += [f"{path}:{node.lineno}" for name in names if name.split(".")[0] == "rela"]  # type: ignore[attr-defined]
    return found


def package() -> dict[str, str]:
    """The files of the package, by their path in it."""
    modules = sources()
    digest = hashlib.sha256("".join(f"{path}\0{text}\0" for path, text in modules.items()).encode()).hexdigest()[:8]
    namespace = f"rela_attention_{digest}"
    files = {path: own_namespace(relative(path, text), namespace) for path, text in modules.items()}
    if wrong := [place for path, text in files.items() for place in left_over(path, text)]:
        raise ValueError(f"these imports of rela could not be made relative: {', '.join(wrong)}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = {
        "id": namespace,
        "name": NAME,
        "version": 1,
        "license": project["license"],
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    files["__init__.py"] = (
        '"""Rectified linear attention (arXiv 2104.07012): fused by Triton on GPUs, plain PyTorch elsewhere."""\n\n'
        "from .attention import *\nfrom .attention import __all__\n"
    )
    files["metadata.json"] = json.dumps(metadata, indent=2) + "\n"
    return {f"{VARIANT}/{path}": text for path, text in files.items()} | {
        "README.md": card(project["license"]),
        "LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }


def card(license: str) -> str:
    return f"""---
license: {license.lower()}
tags: [kernels, attention, sparse-attention, triton]
---

# {NAME}

Rectified linear attention, relu(q kᵀ / √D) v with a gated RMSNorm on the merged heads
([arXiv 2104.07012](https://arxiv.org/abs/2104.07012)): `attend`, `attend_packed`, `MultiheadAttention`,
`replace_attention`. Fused on NVIDIA GPUs by Triton, in plain PyTorch elsewhere.

```python
from pathlib import Path

from kernels import get_local_kernel

rela = get_local_kernel(Path("rela-attention"))  # a folder with this; from a hub, get_kernel("OWNER/{NAME}", version=1)
context = rela.attend(q, k, v, kind="relu", causal=True)
```
"""


def write(out: Path) -> None:
    """Write the package to a folder, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and any(out.iterdir()) and not (out / VARIANT / "metadata.json").is_file():
        raise ValueError(f"{out} is there and is no package of kernels; it is not replaced by one")
    with replacing_folder(out) as fresh:
        for path, text in package().items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "kernels")
    options = parser.parse_args()
    write(options.out)
    print(f"wrote {options.out}")
