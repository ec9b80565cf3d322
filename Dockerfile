# The whole project in one image: server, workers, command line.
#   docker build --tag spo-pipeline .
#   docker build --tag spo-pipeline-gpu --build-arg TORCH=cuda --build-arg EXTRAS=vllm .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# bubblewrap: the sandbox's outer wall; g++: DeepSpeed compiles its communication operator at first use
RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends bubblewrap g++ make \
    && rm -rf /var/lib/apt/lists/*

RUN useradd --create-home --uid 1000 spo && install -d -o spo -g spo /app /home/spo/data
USER spo
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 DO_NOT_TRACK=1

# The environment first: it changes less often than the sources.
ARG TORCH=cpu
ARG EXTRAS=
COPY --chown=spo requirements.lock pyproject.toml README.md ./
COPY --chown=spo scripts scripts
COPY --chown=spo flows flows
COPY --chown=spo tasks tasks
COPY --chown=spo sandbox sandbox
COPY --chown=spo warehouse warehouse
COPY --chown=spo prefect.yaml ./
RUN scripts/install.sh .venv \
    && if [ -n "$EXTRAS" ]; then .venv/bin/pip install --no-cache-dir -c requirements.lock -e ".[$EXTRAS]"; fi

CMD ["spo", "--help"]
