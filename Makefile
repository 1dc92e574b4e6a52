# Every chore is one target. The README's two commands need neither make nor this file.
PYTHON = .venv/bin/python

.PHONY: install run test everything quick lint types gpu-test gpu-memory gpu-corpus gpu-docker attacks soak records pictures clean

install: ; sh scripts/bootstrap.sh
run: install ; .venv/bin/grader run reference/
test: install ; bash scripts/test.sh
# As CI, and each promise in every place: for hours, as root.
everything: ; GRADER_EVERYTHING=1 .ci/run
quick: install ; .venv/bin/pytest
lint: install ; .venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/lint-imports --no-cache
types: install ; .venv/bin/mypy
# The records in their form, an entry a line, and every page that is made from one. Nothing is measured.
records: install
	$(PYTHON) benchmarks/records.py
	$(PYTHON) benchmarks/reference_record.py --render --readme
	$(PYTHON) benchmarks/speed_record.py --render
	$(PYTHON) benchmarks/speed_record.py --render --output benchmarks/speed_record_slow
	$(PYTHON) -m benchmarks.peers_record --render
	$(PYTHON) -m benchmarks.class_record --render
	$(PYTHON) benchmarks/sample_report.py --render
	$(PYTHON) -m tests.support.quality --render
	$(PYTHON) -m tests.corpora.exploits.table
	$(PYTHON) -m docs.pictures
# The pictures of README.md, of the handouts and of docs/, drawn from problem.toml, from samples of reports and from the rooms of the house.
pictures: install ; $(PYTHON) -m docs.pictures

# On a machine with a CUDA GPU, with whatever Python environment is active there.
GPU_TEST = python3 -m pytest -m "gpu and not docker" -p no:cacheprovider --durations 12
# Gradings that measure no speed run beside each other; the rest has the GPU for itself.
SIDE_BY_SIDE = $(addprefix tests/gpu/test_,another_signature.py formulas.py machine.py sanitizer.py)
gpu-test:
	code=0; $(GPU_TEST) -n 6 $(SIDE_BY_SIDE) || code=1; \
	    $(GPU_TEST) -n 0 tests/gpu $(addprefix --ignore ,$(SIDE_BY_SIDE) tests/gpu/test_memory.py tests/gpu/test_torch_form.py tests/gpu/test_kernels.py) || code=1; \
	    exit $$code
# What the largest cases take of a GPU's memory, and all points on smaller cards: with ballast in its memory.
gpu-memory: ; python3 -m pytest -n 0 tests/gpu/test_memory.py -m gpu -s -p no:cacheprovider --durations 12
# The wrong and the right kernels, K=mutants or K=accepted for one half of them; K=slow: what `grader profile`
# says of slow ones. What the torch form's headers take with PyTorch's own compiler is tried with them, and sizes of kernels that no case has.
K = mutants accepted
gpu-corpus: ; python3 -m pytest -n 0 $(addprefix tests/corpora/,$(K)) tests/gpu/test_torch_form.py tests/gpu/test_kernels.py -m gpu -p no:cacheprovider

# On a machine with a GPU and neither Docker nor a network: the engine that `scripts/gpu-image.sh pack` put into FOLDER elsewhere, the
# image, gradings in a container beside those on the host. As root; python3, or PYTHON=..., imports torch.
gpu-docker:
	environment=$$(scripts/gpu-image.sh start $(FOLDER)) && eval "$$environment" && \
	    $${PYTHON:-python3} -m pytest -n 0 tests/gpu/test_container.py -m gpu -s -p no:cacheprovider; \
	code=$$?; scripts/gpu-image.sh stop $(FOLDER); exit $$code

# Every attack in every place that this machine has, and the table of docs/SECURITY.md from what became of them.
attacks: install
	rm -f attacks.jsonl
	GRADER_ALL_ATTACKS=1 GRADER_ATTACKS_RECORD=$(CURDIR)/attacks.jsonl .venv/bin/pytest -n 0 tests/corpora/exploits
	.venv/bin/python -m tests.corpora.exploits.table attacks.jsonl

# SOAK submissions in a row, a third of them hostile, on the host and in a container.
SOAK = 200
soak: install ; GRADER_SOAK=$(SOAK) .venv/bin/pytest -n 0 tests/corpora/exploits/test_soak.py

clean: ; rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info grader-report
