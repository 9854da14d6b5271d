"""The reference of the API: everything that the application offers is told, and rightly."""

from pathlib import Path

import pytest

from serve.admin.web.openapi import ApiField, Type, groups

from .pages_scene import Pages, words


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_every_operation_is_told_and_leads_to_its_place_on_a_small_page(pages: Pages) -> None:
    index = pages.get("/reference").text
    document = pages.app.openapi()
    places = {group.slug: pages.get(f"/reference/{group.slug}").text for group in groups(document)}
    for group in groups(document):
        for one in group.operations:
            assert f'href="/reference/{group.slug}#{one.anchor}"' in index
            assert f'id="{one.anchor}"' in places[group.slug]
    told = sum(len(group.operations) for group in groups(document))
    assert told == sum(len(methods) for methods in document["paths"].values()) > 40
    assert max(len(text) for text in (index, *places.values())) < 75_000
    assert pages.get("/reference/<b>").status_code == 404


def test_every_link_to_a_shape_is_answered_on_its_page(pages: Pages) -> None:
    for group in groups(pages.app.openapi()):
        names = {shape.name for shape in group.shapes}
        fields = [field for shape in group.shapes for field in shape.fields]
        linked = {field.type.shape for field in fields} | {
            answer.type.shape for one in group.operations for answer in one.answers
        }
        assert linked - {""} <= names


def test_a_part_shows_parameters_bodies_answers_and_a_command(pages: Pages) -> None:
    said = words(pages.get("/reference/models"))
    assert "Point a label to a version." in said and "LabelBody" in said
    assert "curl -X PUT http://localhost:8080/api/models/MODEL/labels/LABEL" in said
    assert """-H 'content-type: application/json' -d '{"version": 2}'""" in said


def test_types_are_told_in_words() -> None:
    page = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"$ref": "#/components/schemas/B"}, {"type": "null"}]},
            "b": {"type": "array", "items": {"type": "string"}, "default": []},
            "c": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
            "d": {"enum": ["x", "y"]},
        },
        "required": ["a"],
    }
    get = {"responses": {"200": {"content": _json({"$ref": "#/components/schemas/A"})}}}
    document = {"paths": {"/a": {"get": get}}, "components": {"schemas": {"A": page, "B": {}}}}
    (group,) = groups(document)
    assert group.name == "other" and [shape.name for shape in group.shapes] == ["A", "B"]
    assert group.shapes[0].fields == (
        ApiField("a", Type("B or null", "B"), True, "", ""),
        ApiField("b", Type("list of string"), False, "[]", ""),
        ApiField("c", Type("map of integer ≥ 1"), False, "", ""),
        ApiField("d", Type('"x" or "y"'), False, "", ""),
    )


def test_a_body_without_an_example_gets_one_of_what_must_be_there() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "more": {"type": "string"}},
        "required": ["n"],
    }
    post = {"requestBody": {"content": _json(schema)}, "responses": {}}
    (group,) = groups({"paths": {"/a/{b}": {"post": post}}})
    line = group.operations[0].curl("http://h:1/", shows_key=True)
    assert line == (
        'curl -X POST -H "authorization: Bearer $SERVEGATE_KEY" http://h:1/a/B '
        "-H 'content-type: application/json' -d '{\"n\": 1}'"
    )


def _json(schema: object) -> dict[str, object]:
    return {"application/json": {"schema": schema}}
