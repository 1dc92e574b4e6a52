# Every chore is one target. The README's two commands need neither make nor this file.
PYTHON = .venv/bin/python

.PHONY: install run test quick lint types gpu-test gpu-corpus schema clean

install: ; sh scripts/bootstrap.sh
run: install ; .venv/bin/grader run reference/
test: install ; .venv/bin/pytest
quick: install ; .venv/bin/pytest tests/unit
lint: install ; .venv/bin/ruff check . && .venv/bin/ruff format --check .
types: install ; .venv/bin/mypy
schema: install ; .venv/bin/grader schema > grader/report/schema.json

# On a machine with a CUDA GPU, with whatever Python environment is active there.
gpu-test: ; python3 -m pytest tests/gpu -m gpu -p no:cacheprovider
# The wrong and the right kernels, K=mutants or K=accepted for one half of them.
K = mutants accepted
gpu-corpus: ; python3 -m pytest $(addprefix tests/,$(K)) -m gpu -p no:cacheprovider

clean: ; rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info grader-report
