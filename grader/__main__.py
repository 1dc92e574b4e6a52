"""`python -m grader`: the command line without an installed script."""

from grader.cli import main

main()
