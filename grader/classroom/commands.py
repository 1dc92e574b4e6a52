"""The verbs of `grader class`: from what a learning platform hands out to grades in its gradebook."""

from __future__ import annotations

import typer

classes = typer.Typer(no_args_is_help=True, help="Grade a class: its hand-ins, its grades, its complaints.")
