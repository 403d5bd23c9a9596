# The pool alone: what the services of docker-compose.yml and the pods of the chart run; one image, one command each.
# It is built and run without root, and needs no folder but /tmp to write to.
FROM python:3.11-slim AS build

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY sensorpool /src/sensorpool
RUN python -m venv /opt/sensorpool \
    && /opt/sensorpool/bin/pip install --no-cache-dir --constraint /src/constraints.txt \
    "/src[postgres,mysql,embedded,flower,web,otel]"

FROM python:3.11-slim

COPY --from=build /opt/sensorpool /opt/sensorpool
ENV PATH=/opt/sensorpool/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

# Celery warns of root, and a poke has no use for it. The number lets Kubernetes see that it is not root.
RUN useradd --create-home --uid 10001 sensorpool
USER 10001:10001
WORKDIR /home/sensorpool
CMD ["sensorpool", "--help"]
