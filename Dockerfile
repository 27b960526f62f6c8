# `rela serve` on a CPU. From the root of a checkout:
#
#     docker build --tag rela .
#     docker run --rm --publish 5000:5000 --volume "$PWD/models:/models:ro" rela en-de=/models/en-de
#
# The PyTorch of the default package index also holds GPU libraries, some gigabytes that a CPU does not need;
# --build-arg TORCH_INDEX=URL takes it from another index, such as PyTorch's own for CPUs.
FROM python:3.12-slim

ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

WORKDIR /source
# PyTorch first, in a layer of its own: it changes less often than the code.
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.11,<2.14"
COPY pyproject.toml README.md LICENSE ./
COPY rela ./rela
RUN pip install ".[mt,serve]" && rm -rf /source/*

RUN useradd --system --create-home rela
USER rela
WORKDIR /home/rela

EXPOSE 5000
# Of a container, SIGTERM is what ends it: requests in flight are answered first.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
ENTRYPOINT ["rela", "serve", "--host", "0.0.0.0", "--port", "5000", "--device", "cpu"]
CMD ["--help"]
