"""grader: grades GPU lab assignments with a judge that never runs the student's code."""

__version__ = "0.1.0"
