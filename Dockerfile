# What the services of docker-compose.yml run: one image, one command each.
FROM python:3.11-slim

COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY sensorpool /src/sensorpool
COPY migrations /src/migrations
RUN pip install --no-cache-dir --constraint /src/constraints.txt "/src[postgres,embedded,flower]" \
    && rm -r /src \
    && useradd --create-home --uid 10001 sensorpool

# Celery warns of root, and a poke has no use for it.
USER sensorpool
WORKDIR /home/sensorpool
CMD ["sensorpool", "--help"]
