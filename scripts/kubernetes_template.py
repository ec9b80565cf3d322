"""Print the base job template of a Kubernetes work pool for the pipeline, made from the one that Prefect ships.

    python scripts/kubernetes_template.py --gpus 8 > template.json
    prefect work-pool create spo-kubernetes --type kubernetes --base-job-template template.json

What is added to Prefect's template: GPUs, shared memory for NCCL and train.hand_over, the claims `spo-home` (SPO_HOME)
and `spo-cache` (models, kernels), passwords and addresses from the secret `spo-env`, the image, and what lets a stopped
pod write its checkpoint: the grace, and a first process that waits for the trainer.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import resources
from typing import Any

HOME, CACHE = "/home/spo/data", "/home/spo/cache"
SECRET = "spo-env"


def shipped() -> dict[str, Any]:
    """Prefect's own template of a Kubernetes job."""
    folder = resources.files("prefect.server.api") / "collections_data" / "views"
    workers = json.loads((folder / "aggregate-worker-metadata.json").read_text(encoding="utf-8"))
    return workers["prefect-kubernetes"]["kubernetes"]["default_base_job_configuration"]


def template(*, image: str, gpus: int, shared_memory: str, grace_s: int) -> dict[str, Any]:
    """Prefect's template with what a run of the pipeline needs."""
    found = shipped()
    pod = found["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pod["terminationGracePeriodSeconds"] = grace_s
    pod["securityContext"] = {"fsGroup": 1000}
    pod["volumes"] = [
        {"name": "home", "persistentVolumeClaim": {"claimName": "spo-home"}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": "spo-cache"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}},
    ]
    container["volumeMounts"] = [
        {"name": "home", "mountPath": HOME},
        {"name": "cache", "mountPath": CACHE},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    container["envFrom"] = [{"secretRef": {"name": SECRET}}]
    # The embedded sandbox builds its own walls and needs these system calls
    container["securityContext"] = {"seccompProfile": {"type": "Unconfined"}}
    if gpus:
        container["resources"]["limits"]["nvidia.com/gpu"] = gpus
    defaults = found["variables"]["properties"]
    defaults["image"]["default"] = image
    defaults["command"]["default"] = "python -m flows.server.contained prefect flow-run execute"
    defaults["env"]["default"] = {
        "SPO_HOME": HOME,
        "HF_HOME": f"{CACHE}/huggingface",
        "TRITON_CACHE_DIR": f"{CACHE}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/inductor",
        "VLLM_CACHE_ROOT": f"{CACHE}/vllm",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return found


def main() -> None:
    """Print the template."""
    parser = argparse.ArgumentParser(description="Base job template of a Kubernetes work pool.")
    parser.add_argument("--image", default="spo-pipeline-gpu")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a run's pod; 0: none")
    parser.add_argument("--shared-memory", default="16Gi")
    parser.add_argument("--grace-s", type=int, default=1500, help="time to write a checkpoint when the pod is stopped")
    given = parser.parse_args()
    made = template(image=given.image, gpus=given.gpus, shared_memory=given.shared_memory, grace_s=given.grace_s)
    json.dump(made, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
