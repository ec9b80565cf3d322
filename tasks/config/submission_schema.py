"""The JSON schema by which Prefect checks overrides at submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.config.tree import RunConfig

VALUES = "additionalProperties"
"""JSON schema's word for what an object's other names may hold."""


def overrides_schema() -> dict[str, Any]:
    """JSON schema of what may be overridden at submission: every field optional, unknown ones refused.

    It is written so that Prefect's refusal names the field and what is allowed: unknown names by `propertyNames` (the
    usual `additionalProperties` does not list the known ones), and types inside an `anyOf` of one (Prefect adds null to
    a plain type, and then says of a wrong value only that no type fits).
    """
    whole = RunConfig.model_json_schema()
    return _inline(whole, whole.get("$defs", {}))


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions)
    drop = {"$defs", "required", "default", "title"}
    found = {name: _inline(value, definitions) for name, value in node.items() if name not in drop | {"properties"}}
    if "properties" in node:
        fields = {name: _inline(value, definitions) for name, value in node["properties"].items()}
        del found[VALUES]
        return found | {"properties": fields, "propertyNames": {"enum": sorted(fields)}}
    if found.get("type") in {"integer", "number", "string", "boolean"}:
        text = {"description": found.pop("description")} if "description" in found else {}
        return {"anyOf": [found]} | text
    return found
