# A rendezvous, for a small machine with a public address. Build it from the project's folder, after `make wheel`:
#   docker build -f packaging/containers/rendezvous.Dockerfile -t kafila-rendezvous .
#   docker run -d --network host -v kafila-rendezvous:/data kafila-rendezvous
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/rendezvous.txt dist/pure/*.whl ./
RUN python -m venv /opt/kafila \
 && /opt/kafila/bin/pip install --no-cache-dir --no-deps --only-binary :all: --require-hashes -r rendezvous.txt \
 && /opt/kafila/bin/pip install --no-cache-dir --no-deps ./kafila-*.whl

FROM python:3.13-slim
LABEL org.opencontainers.image.title="kafila-rendezvous" \
      org.opencontainers.image.description="Introduces the members of Kafila sessions" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 7770 kafila \
 && useradd --uid 7770 --gid kafila --no-create-home --shell /usr/sbin/nologin kafila \
 && install -d -m 0700 -o kafila -g kafila /data
COPY --from=build /opt/kafila /opt/kafila
COPY packaging/containers/alive.py /opt/kafila/alive.py
USER 7770:7770
ENV PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 7770/tcp 7770/udp 7771/udp
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s \
  CMD ["/opt/kafila/bin/python", "/opt/kafila/alive.py", "127.0.0.1", "7770"]
ENTRYPOINT ["/opt/kafila/bin/kafila-rendezvous", "--data", "/data"]
CMD ["--listen", "0.0.0.0:7770"]
