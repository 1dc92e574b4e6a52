"""Builds the grading image from a checkout's Dockerfile, with the checkout's course in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from grader.sandbox import engine
from grader.sandbox.base import InfraError, UsageError

BUILD_TIMEOUT_S = 3600


def build(
    source: Path, tag: str, arguments: Mapping[str, str], network: str | None, tell: Callable[[str], None]
) -> str:
    """Build the image of the checkout in `source` and return its digest, as `sha256:...`.

    Args:
        tag: the image's name, as `gpu-lab-grader` or `gpu-lab-grader:2026`.
        arguments: the build's arguments, by the names of the Dockerfile's ARGs.
        network: the network of the build's steps, as `host`; None is the daemon's default.
        tell: takes the builder's output, a line at a time.

    Raises:
        UsageError: there is no Dockerfile.
        InfraError: the daemon or the build failed.
    """
    if not (source / "Dockerfile").is_file():
        raise UsageError(f"{source}: has no Dockerfile; name a checkout of the grader with --course")
    with contextlib.closing(engine.connect(BUILD_TIMEOUT_S)) as client, engine.in_words("build the image"):
        steps = client.api.build(
            path=str(source),
            tag=tag,
            buildargs=dict(arguments),
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        for step in steps:
            if error := step.get("error"):
                raise InfraError(f"the image was not built: {str(error).strip()}")
            if words := str(step.get("stream") or step.get("status") or "").rstrip():
                tell(words)
        engine.remember(tag)
        return client.images.get(tag).id or ""
