# A member: this Ollama with its sidecar. Build it from the project's folder, after `make wheel`, for processors or for
# NVIDIA's GPUs (whose driver, and nothing else, has to be on the host):
#   docker build -f packaging/containers/node.Dockerfile --target cpu -t kafila .
#   docker build -f packaging/containers/node.Dockerfile --target cuda -t kafila:cuda .
#   docker run -d --network host -v kafila:/home/kafila -e KAFILA_TOKEN kafila
# With the host's network, members find paths to it; behind a bridge they reach it through the relay only.
FROM python:3.13-slim AS build
WORKDIR /build
COPY dist/*.whl ./
RUN python -m venv /opt/kafila

FROM build AS build-cpu
RUN wheel=$(echo ./kafila-*.whl) && /opt/kafila/bin/pip install --no-cache-dir --only-binary :all: "${wheel}[node]"

FROM build AS build-cuda
RUN wheel=$(echo ./kafila-*.whl) && /opt/kafila/bin/pip install --no-cache-dir --only-binary :all: "${wheel}[cuda]"

FROM python:3.13-slim AS node
LABEL org.opencontainers.image.title="kafila" \
      org.opencontainers.image.description="One large language model on the machines that people who trust one another already own" \
      org.opencontainers.image.licenses="MIT"
RUN useradd --uid 7771 --create-home --shell /usr/sbin/nologin kafila
ENV PATH=/opt/kafila/bin:$PATH \
    OLLAMA_HOST=127.0.0.1:11434 \
    PYTHONDONTWRITEBYTECODE=1
VOLUME /home/kafila
EXPOSE 11434/tcp
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
  CMD ["/opt/kafila/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:11434/api/version', timeout=5)"]
ENTRYPOINT ["/opt/kafila/bin/kafila"]
CMD ["serve"]

FROM node AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /opt/kafila /opt/kafila
USER 7771

FROM node AS cpu
# OpenBLAS makes MLX some ten times quicker with prompts in 32 bits.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --no-install-recommends -y libopenblas0-pthread \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-cpu /opt/kafila /opt/kafila
USER 7771
