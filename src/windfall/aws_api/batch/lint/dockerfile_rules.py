"""Rules about Dockerfiles: how the image of a GPU job is built.

A Dockerfile is read as text: its instructions, with continued lines joined. Must not run or fetch anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from windfall.aws_api.batch.lint.findings import Rule, Severity

#: NVIDIA's own images that carry the CUDA libraries; those called `base` have hardly any.
_CUDA_BASE = re.compile(r"^(?:docker\.io/)?nvidia/cuda:(\d+\.\d+)[\w.]*-(?:cudnn\d*-)?(?:runtime|devel)\b")
#: Packages whose wheels bring the CUDA libraries with them.
_PIP_INSTALL = re.compile(r"\bpip[\d.]*\s+install\b(?P<words>[^;&|]*)")
_CARRIES_CUDA = re.compile(
    r"(?:^|\s|['\"])(torch|jax\[cuda[^\]]*\]|tensorflow\[and-cuda\])(?=$|[\s'\"=<>!~])"
)
_WHEEL_INDEX = re.compile(r"/whl/(cpu|cu\d+|rocm[\d.]*)")

TWO_CUDAS = Rule(
    "WL201",
    Severity.HINT,
    "CUDA twice in an image",
    "The wheels of PyTorch, and those of JAX and TensorFlow with CUDA, bring the CUDA libraries with them and use"
    " these. A base image that has them too works, also with another version of CUDA, but makes the image about twice"
    " as large, and every start on a new instance longer. The driver comes from the host in either case.",
)
RULES = (TWO_CUDAS,)


def is_dockerfile(text: str) -> bool:
    """Whether a text is a Dockerfile: its first instruction is FROM or ARG."""
    first = next(iter(_instructions(text)), ("", ""))[0]
    return first in {"FROM", "ARG"}


def check_dockerfile(text: str) -> Iterator[tuple[Rule, str, str]]:
    """What is found in a Dockerfile: the rule, what was seen, what to do."""
    base, cuda = "", None
    for instruction, rest in _instructions(text):
        if instruction == "FROM":
            words = [word for word in rest.split() if not word.startswith("--")]
            base = words[0] if words else ""
            cuda = _CUDA_BASE.match(base)
            continue
        installed = _installed_with_cuda(rest) if instruction == "RUN" and cuda is not None else None
        if installed is not None:
            seen = f"the base image {base} has CUDA, and so have the wheels of {installed}"
            yield TWO_CUDAS, seen, "start from python:3.12-slim, or from a `base` image of nvidia/cuda"
            cuda = None  # Once for each stage.


def _installed_with_cuda(command: str) -> str | None:
    """What a command installs that carries CUDA, with the version where the wheel index names one."""
    for install in _PIP_INSTALL.finditer(command):
        package = _CARRIES_CUDA.search(install["words"])
        index = _WHEEL_INDEX.search(install["words"])
        if package is None or (index is not None and not index[1].startswith("cu")):
            continue
        return package[1] + (f" ({index[1]})" if index is not None else "")
    return None


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction with what follows it; comments, empty lines and continuations are resolved."""
    joined = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not joined):
            continue
        joined += line
        if joined.rstrip().endswith("\\"):
            joined = joined.rstrip()[:-1] + " "
            continue
        word, _, rest = joined.strip().partition(" ")
        joined = ""
        if word:
            yield word.upper(), rest
