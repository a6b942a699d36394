"""The dashboard and the alerts ask for metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import roost
from roost.contrib.prometheus import StoreCollector, StructureCollector
from roost.server.http import Metrics
from tests.suite.shapes import pageviews

FOLDER = Path(__file__).parents[2] / "contrib" / "grafana"


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """The metrics of a store, of its structures and of `roost serve`, as /metrics names them."""
    with roost.Store("sqlite://") as store:
        store.create(pageviews)
        registry = CollectorRegistry()
        for each in (StoreCollector(app=store), StructureCollector(store), Metrics([])):
            registry.register(each)
        return {*re.findall(r"^# TYPE (\w+) ", generate_latest(registry).decode(), re.MULTILINE)}


def expressions() -> Iterator[str]:
    panels: list[dict[str, Any]] = json.loads((FOLDER / "roost.json").read_text())["panels"]
    for panel in panels:
        yield from [target["expr"] for target in panel["targets"]]
    yield from re.findall(r"expr: (.*)", (FOLDER / "alerts.yml").read_text())


@pytest.mark.parametrize("expression", [*expressions()])
def test_every_metric_that_is_asked_for_exists(exposed: set[str], expression: str) -> None:
    asked = re.findall(r"\broost_\w+", expression)
    assert asked
    assert [name for name in asked if name.removesuffix("_bucket") not in exposed] == []
