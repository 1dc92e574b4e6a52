"""Redacts a report for its student: takes out facts about the machine, the staff and other students. docs/COMMANDS.md
has the rule.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

from grader.report.model import Report

FAULT = "not graded, and no fault of the submission: the machine or the grader failed; no points are lost by it"
UNSEEN_LOG = "left out: the submission ran without isolation, and may have printed files that are not its own"
# A path from the root, or from a home folder, with two names at least; its last name stays. After a colon too, as in
# PYTHONPATH, and after -I and -L of compilers.
PATH = re.compile(
    r"(?:(?<![\w./\\~…-])|(?<=[\s'\"]-[IL]))(?:file://)?(?:~[\w.-]*)?(?<!\w:(?=//))/+(?:[^\s/\\'\"<>|:;,()]+/+)+"
    r"|(?<!\w)(?:[A-Za-z]:|\\(?=\\\w))\\(?:[^\s/\\'\"<>|:;,()]+\\)*"
)


def redacted(report: Report) -> Report:
    """The report without the seed, the isolation, the system and the fingerprint (`page` shows nothing in their places), without folders
    in paths, without the words of the machine's faults, and without the log of a submission that nothing kept from others' files.
    """
    data = report.model_dump(mode="json")
    data |= {"seed": 0, "fingerprint": "", "isolation": {"jail": "none"}}
    data["environment"]["platform"] = ""
    data["infra_errors"] = [FAULT] if report.infra_errors else []
    if not report.isolation.isolated:
        for one in data["assignments"]:
            if one["log"]["text"] or one["log"]["others"]:
                one["log"] |= {"text": "", "others": [UNSEEN_LOG]}
    path = PurePath(report.submission.path)
    # A folder's name may have spaces, so the submission's are looked for.
    own = re.compile(rf"(?<![\w.:/\\-]){re.escape(str(path.parent))}[/\\]") if path.parent.name else None

    def rewritten(data: Any) -> Any:
        """JSON without folders; the submission's source is kept, and a fault of the machine loses its words."""
        if isinstance(data, str):
            return PATH.sub("…/", own.sub("…/", data) if own else data)
        if isinstance(data, list):
            return [rewritten(one) for one in data]
        if not isinstance(data, dict):
            return data
        if data.get("outcome") == "infra_error" and "message" in data:
            data = data | {"message": FAULT, "diagnosis": [], "traceback": ""}
        return {name: value if name == "sources" else rewritten(value) for name, value in data.items()}

    shortened = rewritten(data)
    shortened["submission"]["path"] = path.name or "submission"
    return Report.model_validate(shortened)
