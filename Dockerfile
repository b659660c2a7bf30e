# One image, two commands: `isvc-sync producer` and `isvc-sync consumer`; the command line is in it as well.
# Python 3.11 is the version that the tests run on.

FROM python:3.11.15-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/ requirements/
RUN python3 -m venv /opt/isvc-sync
RUN /opt/isvc-sync/bin/pip install --require-hashes -r requirements/run.txt
# What builds the project is no part of the image; version and hashes are those of the lock.
RUN python3 -m venv /opt/build \
 && sed -n '/^setuptools==/,/[^\\]$/p' requirements/dev.txt > /opt/build/requirements.txt \
 && /opt/build/bin/pip install --require-hashes -r /opt/build/requirements.txt
COPY pyproject.toml README.md ./
COPY shared/ shared/
COPY producer/ producer/
COPY consumer/ consumer/
COPY sandbox/ sandbox/
COPY replay/ replay/
COPY cli/ cli/
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /opt/build/wheel . \
 && /opt/isvc-sync/bin/pip install --no-deps --no-index /opt/build/wheel/*.whl

FROM python:3.11.15-slim
COPY --from=build /opt/isvc-sync /opt/isvc-sync
# Logs leave at once; glibc's arenas, one per thread and core, would grow the memory for nothing.
ENV PATH=/opt/isvc-sync/bin:$PATH PYTHONUNBUFFERED=1 MALLOC_ARENA_MAX=2
# Numeric, so that the kubelet can see that it is not root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["isvc-sync"]
