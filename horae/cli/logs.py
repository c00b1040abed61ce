"""What a serving arbiter logs, and where: standard error, as lines for people or as JSON."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

#: Without local variables: they would put whole snapshots, and other people's commands, into the log.
_TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def configure(as_json: bool, *, quiet: bool = False) -> None:
    """For structlog's loggers and for the standard library's (uvicorn's) alike."""
    level = logging.WARNING if quiet else logging.INFO
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=False),
    ]
    last: list[Any] = (
        [_TRACEBACKS, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last], foreign_pre_chain=shared
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
