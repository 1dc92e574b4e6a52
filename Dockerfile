# The grading image; on macOS and Windows also a student's way to the grader. Any Docker builds it, BuildKit or not.
#
#   grader image build                     for a machine with a CUDA GPU; or: docker build -t gpu-lab-grader .
#   grader image build --device cpu        for any machine, arm64 too; or: docker build --build-arg DEVICE=cpu ...
#
# A Debian or Ubuntu with Python >= 3.11, its headers, venv and pip.
ARG BASE_IMAGE=python:3.12-slim
FROM ${BASE_IMAGE}

# What both forms need: CUDA C++ is built with g++ on a CPU, nvcc and Triton build with it on a GPU.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ \
 && rm -rf /var/lib/apt/lists/*

# cuda: everything is graded. cpu: correctness is.
ARG DEVICE=cuda
# An index of PyTorch builds to look in besides the usual one. What the usual one has for Linux brings several GB of CUDA
# libraries, which a CPU build does not need: give PyTorch's own index of CPU builds, as its "Get Started" page names it.
ARG TORCH_INDEX_URL=
# Where packages come from, if not from the usual index. Of the build alone; `docker history` shows it, so no passwords.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL

# nvcc refuses what g++ takes, without a GPU too. With one, torch pins its CUDA libraries, and cuda-toolkit gives the compiler of the same
# release, unless the base image has one; ninja builds the torch form.
ENV LANG=C.UTF-8 PATH=/opt/venv/bin:$PATH
COPY pyproject.toml constraints.txt /tmp/build/
RUN cd /tmp/build \
 && python3 -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > requirements.txt \
 && case "$DEVICE" in cpu) echo 'cuda-toolkit[nvcc,cccl]==13.0.*' ;; cuda) echo ninja; [ -x /usr/local/cuda/bin/nvcc ] || echo 'cuda-toolkit[nvcc,cccl]' ;; \
    *) echo "DEVICE is cpu or cuda" >&2; exit 1 ;; esac >> requirements.txt \
 && python3 -m venv /opt/venv \
 && pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt --requirement requirements.txt \
    ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} \
 && rm -r /tmp/build

# The grader looks for nvcc in /usr/local/cuda; the packages lack two names that a toolkit has there.
RUN if [ "$DEVICE" = cuda ] && [ ! -x /usr/local/cuda/bin/nvcc ]; then \
        ln -s "$(python3 -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/nvidia/cu13" /usr/local/cuda \
     && ln -s lib /usr/local/cuda/lib64 \
     && ln -s libcudart.so.13 /usr/local/cuda/lib/libcudart.so \
     && /usr/local/cuda/bin/nvcc --version; \
    fi

# No USER: `grader` starts as root, for only root can read whatever a student mounts, and start a worker as somebody else.
# Root is bounded by the one who starts it, as `grader run --sandbox docker` does: all capabilities dropped but SETUID, SETGID
# and KILL. The course is root's, so that root needs no capability to read it, and readable by the group `judge`;
# students' code, a user without a name that is new in each grading, cannot.
RUN groupadd --gid 10001 judge

COPY pyproject.toml setup.py README.md LICENSE /tmp/build/
COPY grader /tmp/build/grader
COPY assignments /tmp/build/assignments
COPY reference /tmp/build/reference
COPY starter /tmp/build/starter
# The course comes with the package, and is taken out of it: everybody may read Python's packages.
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /tmp/build && rm -r /tmp/build \
 && mv "$(python -c 'from grader.course import own_course; print(own_course())')" /opt/course \
 && chown -R root:judge /opt/course && chmod -R u=rwX,g=rX,o= /opt/course \
 && python -m grader.pool.cuda_cpu

# Docker Desktop does not tell a container of every file that is saved outside: `grader check --watch` is to look for itself.
ENV GRADER_COURSE=/opt/course WATCHFILES_FORCE_POLLING=true

# By which `grader run --sandbox docker` knows whether to give a container a GPU.
LABEL gpu-lab-grader.device=$DEVICE

WORKDIR /work
ENTRYPOINT ["grader"]
CMD ["--help"]
