"""Fault 30: pokes that raise, return values of all types, or cannot ask; and a backend that refuses connections."""

from harness.until import until
from tests.faults.stand import Stand
from tests.faults.trial import RECORDING, outage

SAYS = f"{RECORDING}.Says"
BACKEND = f"{RECORDING}.Backend"
GROUPS = 500


def test_answers_by_airflows_truthiness(stand: Stand) -> None:
    expected = {
        "none": "sensing",
        "zero": "sensing",
        "empty": "sensing",
        "not done": "sensing",
        "one": "success",
        "text": "success",
        "list": "success",
        "done": "success",
        "stubborn": "failed",
    }
    pool = stand.service.pool
    ids = {say: pool.register(SAYS, {"say": say}).id for say in expected}
    ended = [ids[say] for say, state in expected.items() if state != "sensing"]
    assert "sensing" not in pool.wait(ended, 30).values()
    shown = {say: stand.service.json("show", str(instance_id)) for say, instance_id in ids.items()}
    assert {say: each["state"] for say, each in shown.items()} == expected
    assert shown["done"]["xcom_value"] == {"rows": 3}
    assert "ValueError: neither true nor false" in shown["stubborn"]["reason"]
    for say, state in expected.items():
        if state == "sensing":
            pool.cancel(ids[say])


def test_a_backend_refuses_connections(stand: Stand) -> None:
    """500 groups cannot ask for a minute: none fails, other groups are on time, and all land afterwards."""
    pool, folder = stand.service.pool, stand.service.folder
    for trial in stand.trials("30 a backend refuses connections to 500 groups", full=3):
        down = folder / "down"
        down.touch()
        made = pool.register_many(
            {"sensor": BACKEND, "poke_context": {"folder": str(folder), "name": f"backend{n}"}} for n in range(GROUPS)
        )
        ids = [instance.id for instance in made]
        with trial.fault():
            [away] = until("the outage", lambda: stand.service.json("status")["away"])
            assert "Connection refused" in away["cause"]
            assert f"its backend {BACKEND} is away" in stand.service.json("show", str(ids[0]))["next_poke_because"]
            trial.wait_for_pokes(round(outage(6) / 2), patience=200)
            assert set(pool.wait(ids, 0).values()) == {"sensing"}
            for number in range(GROUPS):
                (folder / f"backend{number}.landed").touch()
            down.unlink()
        trial.end()
        assert set(pool.wait(ids, 60).values()) == {"success"}
        for number in range(GROUPS):
            (folder / f"backend{number}.landed").unlink()
