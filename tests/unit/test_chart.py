"""The Helm chart: rendered by Helm's own code, and held against the schemas of Kubernetes' API."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from sensorpool.config import __version__
from tests.support.needs import needed

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "sensorpool"
KUBERNETES = ("1.27", "1.34")  # the oldest that the chart names, and a new one
OTHERS = frozenset({"PodMonitor", "PrometheusRule"})  # of the Prometheus operator, whose schemas are not in the API

helm = needed("helm_python", "Helm's code (helm-python-sdk)")
validate = needed("kubernetes_validate", "the schemas of Kubernetes (kubernetes-validate)")


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in values:
        for name, value in each.items():
            before = found.get(name)
            found[name] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def preset(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / f"values-{name}.yaml").read_text()))


ALONE, AIRFLOW = preset("alone"), preset("airflow")
ALL = merged(
    ALONE,
    {
        "web": {
            "allowActions": True,
            "wakeToken": {"existingSecret": "wake"},
            "ingress": {"enabled": True, "host": "pool.example.com", "className": "nginx", "tlsSecret": "tls"},
        },
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "broker": {"existingSecret": {"name": "broker"}},
        "connections": {"existingSecret": "connections"},
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "networkPolicy": {
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "egress": [{"ports": [{"port": 5432}]}],
        },
        "worker": {"topologySpreadConstraints": [], "tolerations": [{"key": "a", "operator": "Exists"}]},
        "settings": {"budgets": {"s3": "50/s"}, "adaptive": True, "tick": 2.5, "shards": 16},
    },
)
PLAIN_URLS = {
    "database": {"url": "postgresql+psycopg://u:p@db/x"},
    "redis": {"url": "redis://redis:6379/0"},
    "serviceAccount": {"create": False, "name": "mine"},
}


def rendered(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a release called `pool`."""
    texts = helm.Chart.load(str(CHART)).render(dict(values), name="pool", namespace="sensors")
    return [
        each
        for path, text in sorted(texts.items())
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each
    ]


def of_kind(values: Mapping[str, Any], kind: str, suffix: str = "") -> dict[str, Any]:
    [found] = [each for each in rendered(values) if each["kind"] == kind and each["metadata"]["name"].endswith(suffix)]
    return found


def containers(values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the name, the container and the pod of each workload."""
    for each in rendered(values):
        if each["kind"] in {"Deployment", "Job"}:
            pod = each["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield container["name"], container, pod


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [ALONE, AIRFLOW, ALL, PLAIN_URLS], ids=["alone", "airflow", "all", "URLs"])
def test_each_object_is_one_of_the_api(values: Mapping[str, Any], version: str) -> None:
    objects = rendered(values)
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    for each in objects:
        if each["kind"] not in OTHERS:
            validate.validate(each, version, strict=True)
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "pool"


def test_helm_finds_nothing_to_mend() -> None:
    found = helm.lint(str(CHART), strict=True, values=ALL)
    assert [each for each in found["messages"] if each["severity"] > 1] == []


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize("values", [ALONE, AIRFLOW, ALL], ids=["alone", "airflow", "all"])
def test_nothing_runs_as_root_or_writes_beyond_its_own_folders(values: Mapping[str, Any]) -> None:
    seen = set()
    for name, container, pod in containers(values):
        seen.add(name)
        security = container["securityContext"]
        assert security == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(container["resources"]) == {"requests", "limits"}
    assert {"worker", "beat", "migrate"} <= seen


@pytest.mark.parametrize("values", [ALONE, AIRFLOW, ALL], ids=["alone", "airflow", "all"])
def test_no_secret_stands_in_a_pod_or_a_config_map(values: Mapping[str, Any]) -> None:
    for each in rendered(values):
        assert each["kind"] != "Secret"
    for _, container, _ in containers(values):
        for variable in container["env"]:
            secret = any(part in variable["name"] for part in ("URL", "TOKEN", "KEY", "CONN"))
            assert ("valueFrom" in variable) == secret, variable


def test_connections_are_for_the_workers_only() -> None:
    having = {name for name, each, _ in containers(ALL) if "connections" in json.dumps(each.get("envFrom", []))}
    assert having == {"worker"}


def test_urls_in_values_become_a_secret_that_the_migration_has_too() -> None:
    secrets = {each["metadata"]["name"]: each for each in rendered(PLAIN_URLS) if each["kind"] == "Secret"}
    assert secrets.keys() == {"pool-sensorpool", "pool-sensorpool-migrate"}
    assert secrets["pool-sensorpool"]["stringData"]["database-url"] == "postgresql+psycopg://u:p@db/x"
    hooks = secrets["pool-sensorpool-migrate"]["metadata"]["annotations"]
    job = of_kind(PLAIN_URLS, "Job")
    assert int(hooks["helm.sh/hook-weight"]) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
    for name, container, _ in containers(PLAIN_URLS):
        if name == "beat":
            continue
        [url] = [each for each in container["env"] if each["name"] == "SENSORPOOL_DATABASE_URL"]
        named = url["valueFrom"]["secretKeyRef"]["name"]
        assert named == ("pool-sensorpool-migrate" if name == "migrate" else "pool-sensorpool")


def test_the_migration_may_have_a_role_of_its_own() -> None:
    owner = merged(ALONE, {"migrate": {"database": {"existingSecret": {"name": "owner"}}}})
    for name, container, _ in containers(owner):
        if name == "beat":
            continue
        [url] = [each for each in container["env"] if each["name"] == "SENSORPOOL_DATABASE_URL"]
        assert url["valueFrom"]["secretKeyRef"]["name"] == ("owner" if name == "migrate" else "sensorpool-servers")


def test_settings_become_variables_that_the_package_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    from sensorpool.config.settings import Settings

    [worker] = [each for name, each, _ in containers(ALL) if name == "worker"]
    given = {each["name"]: each["value"] for each in worker["env"] if "value" in each}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings.load()
    assert (settings.tick, settings.shards, settings.adaptive, settings.poke_memory) == (2.5, 16, True, 512)
    assert settings.sensors_enabled == tuple(ALONE["settings"]["sensors_enabled"])
    assert [str(each.pattern) for each in settings.budgets] == ["s3"]
    assert (settings.metrics_host, settings.metrics_port) == ("0.0.0.0", 9109)


def test_probes_restart_what_is_stuck_and_nothing_else() -> None:
    by_name = {name: each for name, each, _ in containers(ALL)}
    worker, beat = by_name["worker"], by_name["beat"]
    assert worker["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert worker["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert beat["livenessProbe"]["exec"]["command"] == ["sensorpool", "health", "--self"]
    assert "readinessProbe" not in beat


def test_selectors_find_the_pods_of_their_component_alone() -> None:
    objects = rendered(ALL)
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in objects
        if each["kind"] == "Deployment"
    }
    for each in objects:
        spec = each.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        found = [name for name, have in labels.items() if wanted.items() <= have.items()]
        assert len(found) == 1, each["metadata"]["name"]
        assert set(wanted) == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
        }


def test_the_network_policies_let_in_what_was_named() -> None:
    worker = of_kind(ALL, "NetworkPolicy", "-worker")["spec"]
    assert worker["policyTypes"] == ["Ingress", "Egress"]
    assert worker["ingress"][0]["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    assert "namespaceSelector" in worker["ingress"][0]["from"][0]
    assert of_kind(ALL, "NetworkPolicy", "-beat")["spec"]["ingress"] == []


def test_prometheus_gets_the_alerts_and_the_name_that_they_expect() -> None:
    rule = of_kind(ALL, "PrometheusRule")
    [endpoint] = of_kind(ALL, "PodMonitor")["spec"]["podMetricsEndpoints"]
    [relabeling] = endpoint["relabelings"]
    job = relabeling["replacement"]
    assert relabeling["targetLabel"] == "job"
    assert job == rule["metadata"]["name"], "two releases on one Prometheus are told apart"
    alerts = (ROOT / "monitoring" / "alerts.yml").read_text().replace('job="sensorpool"', f'job="{job}"')
    assert rule["spec"] == yaml.safe_load(alerts)
    dashboard = of_kind(ALL, "ConfigMap", "-dashboard")
    assert json.loads(dashboard["data"]["sensorpool.json"])["title"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_pages_behind_tls_know_that_they_are() -> None:
    """uvicorn believes the Ingress only if it is told to, and a cookie without `Secure` would travel in the clear."""
    for tls_secret, believed in (("tls", "*"), ("", None)):
        ingress = {"enabled": True, "host": "a.example", "tlsSecret": tls_secret}
        values = merged(ALONE, {"web": {"enabled": True, "token": {"existingSecret": "t"}, "ingress": ingress}})
        [container] = of_kind(values, "Deployment", "-web")["spec"]["template"]["spec"]["containers"]
        found = {each["name"]: each.get("value") for each in container["env"]}
        assert found.get("FORWARDED_ALLOW_IPS") == believed


def test_each_process_has_the_secrets_that_it_needs() -> None:
    pages = {"web": {"enabled": True, "token": {"existingSecret": "t"}, "wakeToken": {"existingSecret": "w"}}}
    values = merged(AIRFLOW, pages, {"broker": {"existingSecret": {"name": "broker"}}})
    secrets = {
        name: {each["name"] for each in container["env"] if "valueFrom" in each}
        for name, container, _ in containers(values)
    }
    database, servers = {"SENSORPOOL_DATABASE_URL"}, {"SENSORPOOL_REDIS_URL", "SENSORPOOL_BROKER_URL"}
    assert secrets == {
        "migrate": database,
        "beat": servers,
        "web": database | servers | {"SENSORPOOL_WEB_TOKEN", "SENSORPOOL_WAKE_TOKEN"},
        "worker": database | servers | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__FERNET_KEY"},
    }


def test_the_pool_in_airflows_image_has_its_configuration() -> None:
    for _, container, pod in containers(AIRFLOW):
        assert "AIRFLOW_HOME" in {each["name"] for each in container["env"]}
        assert "/opt/airflow/airflow.cfg" in {each["mountPath"] for each in container["volumeMounts"]}
        assert "args" not in container  # the image's entry point would run them as a command of Airflow's
        assert pod["securityContext"]["runAsUser"] == 50000


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"database": {"existingSecret": {"name": ""}}}, "name the database"),
        ({"redis": {"existingSecret": {"name": ""}}}, "name the Redis"),
        ({"settings": {"redis_url": "redis://x"}}, "settings.redis_url is a secret"),
        ({"settings": {"on_settled_broker_url": "redis://:p@x"}}, "settings.on_settled_broker_url is a secret"),
        ({"settings": {"sensors_enabled": []}}, "would enable the default classes"),
        ({"settings": {"metrics_port": 1}}, "has a value of its own"),
        ({"web": {"ingress": {"enabled": True, "host": "a.example", "path": "/pool"}}}, "must be /"),
        ({"web": {"token": {"existingSecret": ""}}}, "the token of the pages"),
        ({"web": {"ingress": {"enabled": True}}}, "name the host"),
        ({"worker": {"replica": 3}}, "replica"),
        ({"worker": {"metricsPort": 80}}, "metricsPort"),
        ({"image": {"digest": "latest"}}, "digest"),
    ],
    ids=lambda part: json.dumps(part)[:50],
)
def test_a_wrong_value_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        rendered(merged(ALONE, more))


def test_a_chart_can_be_packed(tmp_path: Path) -> None:
    path = helm.Chart.load(str(CHART)).save(str(tmp_path))
    packed = helm.Chart.load(path)
    assert {each["name"] for each in packed.files} >= {"files/alerts.yml", "files/grafana.json"}
