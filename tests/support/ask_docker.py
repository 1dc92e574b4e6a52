"""Asks a Docker daemon without the docker command: `ask_docker ping | has IMAGE | load IMAGE [INSTRUCTION...] <
root.tar`.

Instructions are a Dockerfile's, such as "ENV PATH=/bin".
"""

from __future__ import annotations

import sys

import docker
import requests
from docker.errors import DockerException, ImageNotFound


def main() -> int:
    """Exit code 0 for yes or done, 1 for no."""
    try:
        client = docker.from_env(timeout=600)
    except (DockerException, requests.RequestException):
        return 1
    match sys.argv[1:]:
        case ["ping"]:
            return 0 if client.ping() else 1
        case ["has", image]:
            try:
                client.images.get(image)
            except ImageNotFound:
                return 1
            return 0
        case ["load", image, *instructions]:
            repository, _, tag = image.partition(":")
            client.api.import_image_from_stream(sys.stdin.buffer, repository=repository, tag=tag, changes=instructions)
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
