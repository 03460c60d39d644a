"""One look at all metrics: those that were counted, and those that are read from the engines now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vllm_mlx_core.api import ModelStats

from . import catalog


class Scrape(Collector):
    """What Prometheus's encoders read. ``stats`` is empty if the engines do not answer: nothing is made up for them."""

    def __init__(self, counted: CollectorRegistry, stats: Sequence[ModelStats], health: Mapping[str, bool]) -> None:
        self._counted = counted
        self._stats = stats
        self._health = health

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        for metric in self._counted.collect():
            # The library tells of every series when it was made, which nobody reads and doubles the counters.
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric
        for each in catalog.SCRAPED:
            yield self._read(each)
        healthy = GaugeMetricFamily(catalog.HEALTHY.name, catalog.HEALTHY.help, labels=[catalog.MODEL])
        for model, is_well in self._health.items():
            healthy.add_metric([model], is_well)
        yield healthy

    def _read(self, metric: catalog.Scraped) -> Metric:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=[catalog.MODEL])
        for stats in self._stats:
            value = metric.read(stats)
            if value is not None:
                family.add_metric([stats.model], value)
        return family
