# The whole project in one image: server, workers, command line.
#   docker build --tag spo-pipeline .
#   docker build --tag spo-pipeline-gpu --build-arg TORCH=cuda --build-arg VLLM=1 .
# With VLLM=1 vLLM is there, too, in an environment of its own, since its dependencies exclude Prefect's: recipes name it as
# engine.python = "/app/.venv-vllm/bin/python".
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# bubblewrap: the sandbox's outer wall; g++, make: what compiles at run time, Triton's launchers and torch.compile on GPUs
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends bubblewrap g++ make \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 spo && install -d -o spo -g spo /app /home/spo/data /home/spo/cache
USER spo
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 DO_NOT_TRACK=1

# The environment first: it changes less often than the sources.
ARG TORCH=cpu
ARG EXTRAS=
ARG VLLM=
COPY --chown=spo requirements.lock requirements-vllm.lock pyproject.toml README.md ./
COPY --chown=spo scripts scripts
COPY --chown=spo flows flows
COPY --chown=spo tasks tasks
COPY --chown=spo sandbox sandbox
COPY --chown=spo warehouse warehouse
COPY --chown=spo prefect.yaml ./
RUN scripts/install.sh .venv \
    && if [ -n "$EXTRAS" ]; then .venv/bin/pip install --no-cache-dir -c requirements.lock -e ".[$EXTRAS]"; fi
RUN if [ -n "$VLLM" ]; then PIP_NO_CACHE_DIR=1 TORCH=$TORCH scripts/install_vllm.sh .venv-vllm; fi

CMD ["spo", "--help"]
