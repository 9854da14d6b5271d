"""Ensembles: what their steps are pinned to, and that nothing moves or takes away a part."""

import json

import pytest
from builders import write_model
from control.publishing import ADA, CONFIG, Scene, ensemble, files

from serve.control.placement import pinned_parts
from serve.core.errors import CheckFailed, InUse
from serve.core.versions import VersionState

OTHER = CONFIG.replace("max_batch_size: 8", "max_batch_size: 16")


async def test_a_step_without_a_version_is_pinned_to_what_serves_now(scene: Scene) -> None:
    for data in (b"one", b"two"):
        await scene.publish("m", files(data))
    newest = await scene.publish("newest", ensemble("m"))
    assert pinned_parts(newest) == (("m", 2),), newest.reason
    scene.serving["m"] = 1
    serving = await scene.publish("serving", ensemble("m"))
    assert pinned_parts(serving) == (("m", 1),), serving.reason


async def test_a_step_is_pinned_to_the_name_that_its_version_has_in_triton(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    second = await scene.publish("m", files(b"two", config=OTHER))
    outer = await scene.publish("e", ensemble("m", 2))
    assert pinned_parts(outer) == ((second.physical, 2),) and second.physical != "m"
    again = await scene.publish("f", {"config.pbtxt": outer.config.encode(), "1/empty": b""})
    assert pinned_parts(again) == pinned_parts(outer), again.reason


async def test_pushing_a_part_again_changes_no_ensemble(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    outer = await scene.publish("e", ensemble("m"))
    await scene.publish("m", files(b"two"))
    assert scene.version("e") == outer and pinned_parts(outer) == (("m", 1),)
    newer, created = await scene.push("e", ensemble("m") | {"note.txt": b"again"})
    await scene.pipeline.round()
    newer = scene.version("e", newer.number)
    assert created and pinned_parts(newer) == (("m", 2),)
    assert newer.physical != outer.physical


async def test_a_step_that_names_nothing_living_is_refused(scene: Scene) -> None:
    await scene.publish("m", files())
    await scene.retention.retire("m", 1, ADA)
    for number in (-1, 7):
        outer = await scene.publish("e", ensemble("m", number))
        assert outer.state is VersionState.FAILED and "'m'" in outer.reason, number


async def test_a_plain_model_keeps_its_name_and_is_pinned_to_its_newest(scene: Scene) -> None:
    write_model(scene.plane.repository, "m", 3, 5, config=CONFIG + "version_policy { all {} }")
    await scene.plane.inventory.scan()
    outer = await scene.publish("e", ensemble("m"))
    assert pinned_parts(outer) == (("m", 5),), outer.reason
    assert scene.quarantine.trees[-1][0] == "e/1/empty"
    pinned = await scene.publish("f", ensemble("m", 3))
    assert pinned_parts(pinned) == (("m", 3),)
    missing = await scene.publish("g", ensemble("m", 4))
    assert missing.state is VersionState.FAILED


async def test_the_parts_are_loaded_in_quarantine_before_what_is_made_of_them(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    await scene.publish("m", files(b"two"))
    inner = ensemble("m", 1)
    await scene.publish("inner", inner)
    outer_config = inner["config.pbtxt"].decode().replace('"m"', '"inner"')
    for old, new in (('"x"', '"a2"'), ('"y"', '"b2"'), ('"a2"', '"a"'), ('"b2"', '"b"')):
        outer_config = outer_config.replace(f"key: {old}", f"key: {new}")
    outer = await scene.publish("outer", {"config.pbtxt": outer_config.encode(), "1/e": b""})
    assert outer.is_published, outer.reason
    orders = scene.quarantine.orders[-1]
    assert [order.name for order in orders] == ["m", "inner", "outer"]
    policy = json.loads(orders[0].config_json)["version_policy"]
    assert [int(n) for n in policy["specific"]["versions"]] == [1]
    tree = scene.quarantine.trees[-1]
    assert "m/1/model.onnx" in tree and "m/2/model.onnx" not in tree


async def test_a_part_that_is_retired_before_the_trial_fails_the_ensemble(scene: Scene) -> None:
    await scene.publish("m", files())
    outer = await scene.publish("e", ensemble("m"))
    assert outer.is_published
    await scene.retention.retire("e", 1, ADA)
    await scene.retention.retire("m", 1, ADA)
    with pytest.raises(CheckFailed, match="no longer published"):
        await scene.retention.restore("e", 1, ADA)
    await scene.retention.restore("m", 1, ADA)
    assert (await scene.retention.restore("e", 1, ADA)).is_published


async def test_a_part_of_an_ensemble_is_neither_retired_nor_collected(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    await scene.publish("e", ensemble("m"))
    with pytest.raises(InUse, match="ensemble 'e' version 1"):
        await scene.retention.retire("m", 1, ADA)
    await scene.retention.retire("e", 1, ADA)
    await scene.retention.retire("m", 1, ADA)
    with pytest.raises(InUse, match="ensemble 'e' version 1"):  # which could be restored
        await scene.retention.remove("m", 1, ADA)
    gone = await scene.retention.collect(0, grace=0, dry_run=True, by=ADA)
    assert [one.name for one in gone if one.kind == "version"] == ["e version 1"]
    await scene.retention.restore("m", 1, ADA)
    text = ensemble("m")["config.pbtxt"].decode()
    write_model(scene.plane.repository, "plain", 1, config=text)
    await scene.plane.inventory.scan()
    with pytest.raises(InUse, match="ensemble 'plain' of the model repository"):
        await scene.retention.retire("m", 1, ADA)
