"""The JSON schema by which Prefect checks overrides at submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.config.tree import RunConfig

VALUES = "additionalProperties"
"""JSON schema's word for what an object's other names may hold."""


NULL = {"type": "null"}


def overrides_schema() -> dict[str, Any]:
    """JSON schema of what may be overridden at submission: every field optional or null, unknown ones refused.

    It is written so that Prefect's refusal names the field and what is allowed: unknown names by `propertyNames` (the
    usual `additionalProperties` does not list the known ones), and a type inside an `anyOf` of its own (of several
    types side by side Prefect says only that none fits, and it adds null to a plain one itself).
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
    drop = {"$defs", "required", "default", "title", "properties", VALUES}
    found = {name: _inline(value, definitions) for name, value in node.items() if name not in drop}
    if "properties" in node:
        fields = {name: _field(value, definitions) for name, value in node["properties"].items()}
        return found | {"properties": fields, "propertyNames": {"enum": sorted(fields)}}
    if isinstance(node.get(VALUES), dict):
        return found | {VALUES: _or_null(_inline(node[VALUES], definitions))}
    return {"anyOf": [found]} if found.get("type") in {"integer", "number", "string", "boolean"} else found


def _field(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A field's schema with null beside its type; sections and lists stay as they are: Prefect adds null there."""
    options = [option for option in node.get("anyOf", [node]) if option != NULL]
    if len(options) > 1:
        raise TypeError(f"a field of several types has no schema here: {node}")
    inner = _inline({name: value for name, value in options[0].items() if name != "description"}, definitions)
    text = {"description": node["description"]} if "description" in node else {}
    return (inner if inner.get("type") in {"object", "array"} else _or_null(inner)) | text


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema or null; what is wrong with a value is said by the schema, which the inner `anyOf` puts first."""
    return {"anyOf": [schema if "anyOf" in schema else {"anyOf": [schema]}, NULL]}
