"""What a server is told, and the services in containers: no password is given away, every variable is explained."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.cli.worker import start as start_worker
from prefect.events.schemas.automations import AutomationCore

from flows.server import deployments

PROJECT = Path(__file__).parents[3]
COMPOSE = (PROJECT / "docker-compose.yml").read_text(encoding="utf-8")
EXAMPLE = (PROJECT / ".env.example").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
SECRET = re.compile(r"PASSWORD|SECRET")


def variables(text: str) -> dict[str, str]:
    """Variables of the example file with their values."""
    return dict(re.findall(r"^([A-Z_]+)=(.*)$", text, flags=re.MULTILINE))


def test_a_run_without_heartbeat_is_marked_as_crashed() -> None:
    made = AutomationCore.model_validate(deployments.automation())
    assert made.trigger.posture.value == "Proactive"  # type: ignore[union-attr]
    assert made.actions[0].state.value == "CRASHED"  # type: ignore[union-attr]
    assert "prefect.flow-run.heartbeat" in made.trigger.expect  # type: ignore[union-attr]


def test_no_password_has_a_default_and_none_is_in_the_example() -> None:
    used = re.findall(r"\$\{([A-Z_]+)(:[-?][^}]*)?\}", COMPOSE)
    secrets = {name for name, _ in used if SECRET.search(name)}
    assert secrets >= {"PREFECT_DB_PASSWORD", "REDIS_PASSWORD", "CATALOG_PASSWORD", "AWS_SECRET_ACCESS_KEY"}
    assert not [name for name, rest in used if name in secrets and rest.startswith(":-")]
    assert all((name, ":?set it in .env") in used for name in secrets)
    assert {name: variables(EXAMPLE)[name] for name in secrets} == dict.fromkeys(secrets, "")


def test_every_variable_without_a_default_is_in_the_example() -> None:
    used = re.findall(r"(?<!\$)\$\{([A-Z_]+)(:-)?", COMPOSE)
    needed = {name for name, default in used if not default} - {name for name, default in used if default}
    assert needed <= set(variables(EXAMPLE))


def test_what_others_wait_for_can_be_waited_for() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[name], name


def test_the_api_has_several_replicas_without_services_of_their_own() -> None:
    api = SERVICES["prefect-api"]
    assert api["deploy"]["replicas"] >= 2
    assert "--no-services" in api["command"]
    for name in ("PREFECT_SERVER_DOCKET_URL", "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING"):
        assert name in api["environment"]


def test_workers_can_be_asked_whether_they_poll_and_keep_what_they_fetched_and_compiled() -> None:
    for name in ("worker", "worker-gpu"):
        worker = SERVICES[name]
        assert "--with-healthcheck" in worker["command"]
        assert "127.0.0.1:8080/health" in worker["healthcheck"]["test"][-1]
        (cache,) = [mount.split(":")[1] for mount in worker["volumes"] if mount.startswith("cache:")]
        kept = ("HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT")
        assert all(worker["environment"][variable].startswith(f"{cache}/") for variable in kept)
        assert worker["environment"]["HF_TOKEN"] == "${HF_TOKEN:-}"
        assert f" {cache}" in (PROJECT / "Dockerfile").read_text(encoding="utf-8"), "it must belong to the user"
    assert "cache" in yaml.safe_load(COMPOSE)["volumes"]


def test_a_stopped_worker_waits_for_its_trainer_as_long_as_the_example_says() -> None:
    for name, grace in (("worker", "STOP_GRACE"), ("worker-gpu", "GPU_STOP_GRACE")):
        worker = SERVICES[name]
        assert worker["command"].startswith("python -m flows.server.contained prefect worker start ")
        assert worker["stop_grace_period"] == f"${{{grace}:-{variables(EXAMPLE)[grace]}}}"


def test_the_gpu_image_has_vllm_in_an_environment_of_its_own() -> None:
    dockerfile = (PROJECT / "Dockerfile").read_text(encoding="utf-8")
    assert SERVICES["worker-gpu"]["build"]["args"] == {"TORCH": "cuda", "VLLM": "1"}
    assert "scripts/install_vllm.sh .venv-vllm" in dockerfile
    assert "requirements-vllm.lock" in dockerfile


def test_the_worker_knows_the_option_that_the_health_check_needs() -> None:
    assert "with_healthcheck" in inspect.signature(start_worker).parameters


def test_compose_accepts_the_file_when_the_passwords_are_set(tmp_path: Path) -> None:
    compose = _compose()
    if compose is None:
        pytest.skip("no docker compose here (Debian: apt-get install docker-compose)")
    filled = tmp_path / "env"
    filled.write_text(re.sub(r"=$", "=secret123", EXAMPLE, flags=re.MULTILINE), encoding="utf-8")
    command = [*compose, "-f", str(PROJECT / "docker-compose.yml"), "--env-file"]
    accepted = subprocess.run([*command, str(filled), "config"], capture_output=True, text=True)
    assert accepted.returncode == 0, accepted.stderr
    refused = subprocess.run([*command, str(PROJECT / ".env.example"), "config"], capture_output=True, text=True)
    assert refused.returncode != 0


def _compose() -> list[str] | None:
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    known = shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True)
    return ["docker", "compose"] if known and known.returncode == 0 else None
