# The gateway as a container image, and the sample API with it (python -m gateway.devtools.sample).
#
#   docker build -t idempotency-gateway:dev --build-arg VERSION="$(git describe --tags --match 'v*' | cut -c2-)" \
#     --build-arg REVISION="$(git rev-parse HEAD)" .
#
# It serves /etc/idempotency-gateway/gateway.yaml, runs as 10001:10001 and writes to /tmp alone: run it with a read-only root and a
# tmpfs on /tmp. To pin the base by digest, which a tag does not do:
#
#   docker pull python:3.12-slim && docker image inspect --format '{{index .RepoDigests 0}}' python:3.12-slim
#   docker build --build-arg PYTHON_IMAGE=python@sha256:... .
#
# The base's CPython is built with profile-guided and link-time optimisation, which takes a tenth off the CPU of a replay. A base of
# your own should be, too: python -c 'import sysconfig; print(sysconfig.get_config_var("CONFIG_ARGS"))' shows --enable-optimizations.
#
# Plain instructions only, for builders with and without BuildKit.
ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
# A package index of your own, as pip reads it from the environment. This stage is not part of the image, but its build cache
# keeps the values: use an address without a password.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/gateway

# The dependencies are a layer of their own, which a change of the code leaves alone. Wheels only, since nothing needs a compiler, and none
# but those whose hashes are known here: an index that was tampered with stops the build.
COPY deploy/image/requirements.txt deploy/image/build.txt ./
RUN python -m pip --python /opt/gateway/bin/python install --only-binary :all: --require-hashes --requirement requirements.txt \
 && python -m pip install --only-binary :all: --require-hashes --requirement build.txt

# The package's version, as the label has it: the context has no .git to take it from.
ARG VERSION=0.1.dev0
COPY pyproject.toml README.md LICENSE ./
COPY gateway/ gateway/
# Compiled here, since the image is read-only later; unchecked, since nothing edits a source there.
RUN SETUPTOOLS_SCM_PRETEND_VERSION="${VERSION}" \
    python -m pip wheel --no-deps --no-build-isolation --no-index --wheel-dir dist . \
 && python -m pip --python /opt/gateway/bin/python install --no-deps --no-index dist/*.whl \
 && python -m pip --python /opt/gateway/bin/python check \
 && /opt/gateway/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/gateway/lib

FROM ${PYTHON_IMAGE}
# Base images may bring the standard library without bytecode, and a read-only root never gains it: every start would compile it.
RUN python -m compileall -q -j 0 -x '/(ensurepip|idlelib|lib2to3|pydoc_data|site-packages|test|tkinter|turtledemo)/' \
    "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/gateway /opt/gateway
ENV PATH=/opt/gateway/bin:$PATH GATEWAY_CONFIG=/etc/idempotency-gateway/gateway.yaml PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8080 9464
# Alive, not ready: a restart does not bring an absent Postgres back. The command finds the admin listener in the configuration, under TLS or
# on a unix socket, too. The start period covers the time that a start waits for Postgres.
HEALTHCHECK --interval=10s --timeout=5s --start-period=40s --retries=3 CMD ["idempotency-gateway", "health", "--live"]
ENTRYPOINT ["idempotency-gateway"]
CMD ["serve", "--config", "/etc/idempotency-gateway/gateway.yaml"]

# Last, as they change with every commit.
ARG VERSION=0.1.dev0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="idempotency-gateway" \
      org.opencontainers.image.description="A reverse proxy that gives any HTTP API the Idempotency-Key contract." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
