"""The shop's tasks, and what waits for deliveries."""

from typing import Any

from celery import chain

import sensorpool
from shop.app import app
from shop.sensors import delivered


@app.task(name="shop.load")
def load(path: str) -> dict[str, Any]:
    """Load a delivery."""
    with open(path) as lines:
        return {"path": path, "rows": sum(1 for _ in lines)}


@app.task(name="shop.report")
def report(loaded: dict[str, Any]) -> str:
    """Say what was loaded."""
    return f"{loaded['rows']} rows of {loaded['path']}"


@app.task(name="shop.alarm")
def alarm(result: dict[str, Any]) -> str:
    """Tell an operator of a delivery that did not come."""
    return f"{result['state']}: {result['reason']}"


def load_when_delivered(partner: str, day: str) -> Any:
    """Return a chain that waits for a delivery without a worker, and loads it: ``.apply_async()`` starts it."""
    return chain(
        sensorpool.wait_for(delivered(partner, day), poke_interval=5, timeout=86_400),
        load.s(),
        report.s(),
    )


def tell_when_all_are_delivered(partners: list[str], day: str) -> sensorpool.Instance:
    """Have one task sent when the deliveries of all partners are there, and another one if one does not come."""
    waits = [
        sensorpool.register(
            delivered(partner, day),
            dag_id="shop",
            task_id=f"delivery-{partner}",
            run_id=day,  # the same three register once, however often this is called
            timeout=86_400,
        )
        for partner in partners
    ]
    return sensorpool.all_of(
        waits,
        dag_id="shop",
        task_id="all-delivered",
        run_id=day,
        on_success=alarm.si({"state": "all there", "reason": day}),
        on_failure=alarm.s(),
    )
