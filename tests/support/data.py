"""Models for the data files beside the tests: mutant.toml, accepted.toml, exploit.toml."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _compiles(pattern: str) -> str:
    re.compile(pattern)
    return pattern


Pattern = Annotated[str, AfterValidator(_compiles)]  # a regular expression
