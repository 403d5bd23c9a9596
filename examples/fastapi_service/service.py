"""A service that waits for files on behalf of its clients."""

from typing import Annotated

from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel, Field

import sensorpool
from sensorpool import aio
from sensorpool.sensors import PathSensor

app = FastAPI(title="waits")


class Wanted(BaseModel):
    """What a client waits for."""

    path: str = Field(max_length=4_000)
    timeout: float = Field(default=3_600, gt=0, le=86_400)


class Wait(BaseModel):
    """A wait as it is now."""

    id: int
    state: sensorpool.State
    reason: str | None = None


@app.post("/waits", status_code=201)
async def begin(wanted: Wanted) -> Wait:
    """Begin to wait."""
    try:
        instance = await aio.register(PathSensor, {"path": wanted.path}, timeout=wanted.timeout, poke_interval=1)
    except sensorpool.Refused as error:
        raise HTTPException(422, str(error)) from None
    except sensorpool.Unreachable as error:
        raise HTTPException(503, str(error)) from None
    return Wait(id=instance.id, state=instance.state)


@app.get("/waits/{wait_id}")
async def look(wait_id: int, wait: Annotated[float, Query(ge=0, le=60)] = 0) -> Wait:
    """Say how it is; with ``wait`` answer when it has ended, or after so many seconds."""
    try:
        await aio.wait(wait_id, timeout=wait)
        instance = await aio.get(wait_id)
    except sensorpool.Unknown as error:
        raise HTTPException(404, str(error)) from None
    result = await aio.result(instance)
    return Wait(id=instance.id, state=instance.state, reason=None if result is None else result.reason)


@app.delete("/waits/{wait_id}")
async def end(wait_id: int) -> Wait:
    """Wait no more."""
    try:
        state = await aio.cancel(wait_id, "its client has gone")
    except sensorpool.Unknown as error:
        raise HTTPException(404, str(error)) from None
    return Wait(id=wait_id, state=state)
