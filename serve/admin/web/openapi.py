"""An OpenAPI document as values that a page can show: groups of operations, and the shapes in them.

The document is ours, so what it leaves out does not matter here; it comes as FastAPI makes it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

_REF = "#/components/schemas/"
_JSON = "application/json"
_OF_ALL = frozenset({"authorization"})  # parameters that are told once
_DEEPEST = 6  # of an example that is made up
_MADE_UP: Mapping[str, Any] = {
    "string": "…",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}


@dataclass(frozen=True, slots=True)
class Type:
    """A type in words; `shape` names the shape to look at, if there is one."""

    words: str
    shape: str = ""


@dataclass(frozen=True, slots=True)
class ApiField:
    """One parameter, or one field of a body. `where` is path, query, header, or empty."""

    name: str
    type: Type
    is_required: bool
    default: str
    about: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class ApiShape:
    """What a JSON object is made of."""

    name: str
    about: str
    fields: tuple[ApiField, ...]


@dataclass(frozen=True, slots=True)
class ApiRequestBody:
    """What is sent: its media type, and for JSON its type and an example."""

    media: str
    type: Type
    example: str


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One status and what comes with it."""

    status: str
    about: str
    type: Type


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path. `anchor` is its name within a page."""

    method: str
    path: str
    anchor: str
    summary: str
    about: str
    parameters: tuple[ApiField, ...]
    body: ApiRequestBody | None
    answers: tuple[ApiResponse, ...]

    def curl(self, base: str, *, shows_key: bool) -> str:
        """The command that does it, with names in capitals for what is to be filled in."""
        path = re.sub(r"{(\w+)}", lambda match: match[1].upper(), self.path)
        words = ["curl"]
        if self.method != "GET":
            words.append("--head" if self.method == "HEAD" else f"-X {self.method}")
        if shows_key:
            words.append('-H "authorization: Bearer $SERVEGATE_KEY"')
        query = "&".join(
            f"{one.name}={one.name.upper()}"
            for one in self.parameters
            if one.is_required and one.where == "query"
        )
        words += [
            f"-H {quote(f'{one.name}: {one.name.upper()}')}"
            for one in self.parameters
            if one.is_required and one.where == "header"
        ]
        words.append(quote(f"{base.rstrip('/')}{path}{'?' if query else ''}{query}"))
        return " ".join([*words, *self._sent()])

    def _sent(self) -> Iterator[str]:
        if self.body is None:
            return
        if self.body.media.startswith("multipart/"):
            yield "-F name=NAME -F files=@FILE"
            return
        yield f"-H {quote(f'content-type: {self.body.media}')}"
        yield f"-d {quote(self.body.example)}" if self.body.example else "--data-binary @FILE"


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """The operations of one tag, and every shape that they speak of."""

    name: str
    slug: str
    operations: tuple[Operation, ...]
    shapes: tuple[ApiShape, ...]


def groups(document: Mapping[str, Any]) -> tuple[ApiGroup, ...]:
    """Every operation of a document by its first tag, in the document's order."""
    schemas = document.get("components", {}).get("schemas", {})
    found: dict[str, list[tuple[Operation, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, page in methods.items():
            tag = (page.get("tags") or ["other"])[0]
            one = _operation(method.upper(), path, page, schemas)
            found.setdefault(tag, []).append((one, page))
    return tuple(
        ApiGroup(
            tag,
            _slug(tag),
            tuple(one for one, _ in rows),
            tuple(_shape(name, schemas[name]) for name in _reached([p for _, p in rows], schemas)),
        )
        for tag, rows in found.items()
    )


def _operation(
    method: str, path: str, page: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Operation:
    return Operation(
        method=method,
        path=path,
        anchor=_slug(f"{method} {path}"),
        summary=page.get("summary", ""),
        about=page.get("description", ""),
        parameters=tuple(
            _parameter(row) for row in page.get("parameters", ()) if row["name"] not in _OF_ALL
        ),
        body=_body(page.get("requestBody", {}).get("content", {}), schemas),
        answers=tuple(
            ApiResponse(status, row.get("description", ""), _answered(row.get("content", {})))
            for status, row in page.get("responses", {}).items()
        ),
    )


def _parameter(row: Mapping[str, Any]) -> ApiField:
    schema = row.get("schema", {})
    about = row.get("description") or schema.get("description", "")
    is_required = bool(row.get("required"))
    return ApiField(row["name"], _type(schema), is_required, _default(schema), about, row["in"])


def _body(content: Mapping[str, Any], schemas: Mapping[str, Any]) -> ApiRequestBody | None:
    for media, page in content.items():
        schema = page.get("schema", {})
        example = page.get("example", _example(schema, schemas)) if media == _JSON else ""
        text = json.dumps(example, ensure_ascii=False) if media == _JSON else ""
        return ApiRequestBody(media, _type(schema), text)
    return None


def _answered(content: Mapping[str, Any]) -> Type:
    for media, page in content.items():
        return _type(page.get("schema", {})) if media == _JSON else Type(media)
    return Type("")


def _shape(name: str, schema: Mapping[str, Any]) -> ApiShape:
    required = set(schema.get("required", ()))
    fields = [
        ApiField(
            field,
            _type(page),
            field in required,
            _default(page),
            page.get("description", ""),
        )
        for field, page in schema.get("properties", {}).items()
    ]
    about = schema.get("description", "")
    if "enum" in schema:
        about = f"{about} One of: {', '.join(map(str, schema['enum']))}.".strip()
    return ApiShape(name, about, tuple(fields))


def _type(schema: Mapping[str, Any]) -> Type:
    if "$ref" in schema:
        name = str(schema["$ref"]).removeprefix(_REF)
        return Type(name, name)
    if "anyOf" in schema:
        parts = [_type(one) for one in schema["anyOf"]]
        shape = next((one.shape for one in parts if one.shape), "")
        return Type(" or ".join(one.words for one in parts), shape)
    if "const" in schema:
        return Type(json.dumps(schema["const"]))
    if "enum" in schema:
        return Type(" or ".join(json.dumps(one) for one in schema["enum"]))
    kind = schema.get("type", "")
    if kind == "array":
        inner = _type(schema.get("items", {}))
        return Type(f"list of {inner.words or 'any'}", inner.shape)
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        inner = _type(schema["additionalProperties"])
        return Type(f"map of {inner.words or 'any'}", inner.shape)
    return Type(" ".join(filter(None, (str(kind), _bounds(schema)))) or "any")


def _bounds(schema: Mapping[str, Any]) -> str:
    names = {
        "minimum": "≥ {:.15g}",
        "exclusiveMinimum": "> {:.15g}",
        "maximum": "≤ {:.15g}",
        "exclusiveMaximum": "< {:.15g}",
        "maxLength": "of at most {} characters",
    }
    said = [text.format(schema[name]) for name, text in names.items() if name in schema]
    return ", ".join(said)


def _default(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else ""


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> Any:
    """The first example of a schema, or one made up of what must be there."""
    if "$ref" in schema:
        schema = schemas[str(schema["$ref"]).removeprefix(_REF)]
    if schema.get("examples"):
        return schema["examples"][0]
    if "default" in schema or depth > _DEEPEST:
        return schema.get("default")
    for name in ("anyOf", "enum"):
        if schema.get(name):
            first = schema[name][0]
            return _example(first, schemas, depth + 1) if name == "anyOf" else first
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), schemas, depth + 1)]
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        return {
            field: _example(properties[field], schemas, depth + 1)
            for field in schema.get("required", ())
        }
    return _MADE_UP.get(str(schema.get("type")), "…")


def _reached(pages: Sequence[Any], schemas: Mapping[str, Any]) -> list[str]:
    """The shapes that these speak of, and those that they are made of, by name."""
    found: set[str] = set()
    todo: list[Any] = list(pages)
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            name = str(one.get("$ref", "")).removeprefix(_REF)
            if name in schemas and name not in found:
                found.add(name)
                todo.append(schemas[name])
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return sorted(found)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
