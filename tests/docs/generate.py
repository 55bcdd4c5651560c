"""Writes the generated parts of the pages; `make docs` runs it, and a test fails when a part is stale.

A part stands between `<!-- generated: NAME -->` and `<!-- end of generated -->` in any page. Its text comes
from the code that the page describes, so that the page cannot say something else.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping

from tests.docs.pages import pages
from tests.tidy.tree import shown
from windfall.aws_api.coverage import coverage_page

#: The generated parts: a function without arguments that returns Markdown, as "module:function".
PARTS: dict[str, str] = {
    "attempt-stages": "tests.docs.parts:attempt_stages",
    "job-states": "tests.docs.parts:job_states",
    "array-rest": "tests.docs.parts:array_rest",
    "service-job-states": "tests.docs.parts:service_job_states",
    "instance-states": "tests.docs.parts:instance_states",
    "tick-outcomes": "tests.docs.parts:tick_outcomes",
    "endpoint-states": "tests.docs.parts:endpoint_states",
    "replica-states": "tests.docs.parts:replica_states",
    "settings": "tests.docs.parts:settings",
    "lint-rules": "tests.docs.parts:lint_rules",
}

MARKED = re.compile(
    r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end of generated -->)", re.MULTILINE | re.DOTALL
)


#: Pages that are generated as a whole.
WHOLE_PAGES: dict[str, Callable[[], str]] = {"docs/aws-coverage.md": coverage_page}


def render(name: str, parts: Mapping[str, str] = PARTS) -> str:
    """The text of one part as the code has it now."""
    if name not in parts:
        raise LookupError(f"no generated part is called {name!r}; add it to PARTS in tests/docs/generate.py")
    module, _, function = parts[name].partition(":")
    text = getattr(importlib.import_module(module), function)()
    assert isinstance(text, str)
    return text.strip("\n")


def refreshed(page: str, render_part: Callable[[str], str] = render) -> str:
    """A page with its generated parts written anew and all else as it was."""
    return MARKED.sub(lambda part: f"{part[1]}{render_part(part['name'])}\n{part[3]}", page)


def main() -> None:
    """Refreshes every page and says which ones changed."""
    for page in pages():
        old = page.read_text(encoding="utf-8")
        whole = WHOLE_PAGES.get(shown(page))
        new = whole() if whole else refreshed(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"written: {shown(page)}")


if __name__ == "__main__":
    main()
