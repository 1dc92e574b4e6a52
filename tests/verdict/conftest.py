"""The builders of reports, for functions over results."""

from tests.report.conftest import make_case, make_part, make_report

__all__ = ["make_case", "make_part", "make_report"]
