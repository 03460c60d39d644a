"""From what the operator called a model to a client that can be asked: find, detect, choose, load."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from vllm_mlx_core.api import Checkpoint, LoadOptions, ModelInfo, ParserChoice, Settings
from vllm_mlx_core.engine.client import ModelClient, Observers
from vllm_mlx_core.engine.messages import EngineReady
from vllm_mlx_core.engine.thread import EXIT_GRACE_S, EngineThread
from vllm_mlx_core.host import Host

from .cache_choice import CacheChoice
from .capabilities import capabilities
from .choices import check_names, check_warm_prompts, choose_parsers, make_cache, parser_classes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that serves, and how it came to serve the way it does."""

    client: ModelClient
    checkpoint: Checkpoint
    ready: EngineReady
    parsers: ParserChoice
    cache: str

    @property
    def info(self) -> ModelInfo:
        """What clients may know of it."""
        return self.client.info


def load_model(reference: str | None, host: Host, settings: Settings, options: LoadOptions) -> LoadedModel:
    """Find and load a model and start its engine. Blocks until it serves; any thread but the event loop's.

    ``reference`` is a path, a hub id or a name that a plugin knows; None is the default model. Raises ModelError,
    PluginError or UsageError. The weights load on the engine thread while tokenizer and template load on this one.
    """
    check_names(host, settings)
    options.progress("finding the model", None)
    checkpoint = replace(host.resolve_model(reference, options), template=options.chat_template)
    family_name = host.detect_family(checkpoint)
    family_class = host.model_families.get(family_name)
    parsers = choose_parsers(checkpoint, family_name, family_class, host, settings)
    cache = settings.engine.cache or host.choose_cache(checkpoint, family_name, settings) or "off"
    cache = host.cover_cache(cache, settings) or cache
    family = family_class(checkpoint, options)
    policy = make_cache(cache, host, settings.engine)
    check_warm_prompts(settings, policy, cache)
    name = settings.served_model_name or checkpoint.name or checkpoint.path.name

    options.progress("loading the model", None)
    engine = EngineThread(name, family, policy, settings.engine, progress=options.progress)
    loading = engine.start()
    try:
        processor = family.load_processor()
        tool_parser, reasoning_parser = parser_classes(parsers, host)
        ready = loading.result()
    except KeyboardInterrupt:
        engine.stop(timeout_s=0)
        raise
    except BaseException:
        engine.stop(timeout_s=EXIT_GRACE_S)  # a process that ends while a thread imports or loads ends noisily
        raise
    limit = settings.engine.max_model_len
    info = ModelInfo(
        id=name,
        created=int(time.time()),
        context_length=min(processor.context_length, limit or processor.context_length),
        family=family_name,
        aliases=sorted({checkpoint.name, "default"} - {name, ""}),
        tool_parser=parsers.tool,
        reasoning_parser=parsers.reasoning,
        capabilities=capabilities(processor, parsers, ready),
    )
    if ready.max_sequence_tokens < info.context_length:
        log.warning(
            "The memory holds %d tokens of one request, fewer than the %d of the context: longer requests are refused.",
            ready.max_sequence_tokens,
            info.context_length,
        )
    observers = Observers(host.request_received, host.request_finished, host.step_finished)
    client = ModelClient(
        info,
        processor,
        engine,
        ready,
        settings,
        tool_parser=tool_parser,
        reasoning_parser=reasoning_parser,
        cache_policy=CacheChoice.parse(cache).shown,
        observers=observers,
    )
    return LoadedModel(client, checkpoint, ready, parsers, cache)
