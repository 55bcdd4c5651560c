"""The index lists every page once, and the dashboard asks for metrics that exist."""

from __future__ import annotations

import json
import re
from collections import Counter

from tests.docs.pages import links
from tests.tidy.tree import ROOT

DOCS = ROOT / "docs"
DASHBOARD = DOCS / "grafana" / "windfall.json"
METRIC = re.compile(r"\bwindfall_[a-z_]+\b")


def test_every_page_is_listed_once():
    listed = Counter(
        (DOCS / link).resolve() for link in links((DOCS / "index.md").read_text(encoding="utf-8"))
    )
    pages = {
        page.resolve()
        for page in DOCS.rglob("*.md")
        if page.name != "index.md" and not {"decisions", "raw"} & set(page.relative_to(DOCS).parts)
    }
    assert sorted(str(page.relative_to(DOCS)) for page in pages - set(listed)) == [], (
        "list it in docs/index.md"
    )
    assert [str(page) for page, times in listed.items() if times > 1] == []


def test_the_dashboard_and_the_pages_name_metrics_that_exist():
    source = (ROOT / "src" / "windfall" / "views" / "metrics.py").read_text(encoding="utf-8")
    exist = set(re.findall(r'"(windfall_[a-z_]+)"', source))
    assert len(exist) > 20
    dashboard = DASHBOARD.read_text(encoding="utf-8")
    asked = set(METRIC.findall(dashboard)) | set(
        METRIC.findall((DOCS / "operations.md").read_text(encoding="utf-8"))
    )
    assert asked - exist == set()
    # What is measured is shown, too.
    assert exist - set(METRIC.findall(dashboard)) == set()


def test_the_dashboard_can_be_imported():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables
            assert target["expr"].count("(") == target["expr"].count(")")
            assert target["expr"].count("{") == target["expr"].count("}")
