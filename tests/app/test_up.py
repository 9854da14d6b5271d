"""What `servegate up` says before it starts anything."""

import pytest

from serve.app.up import warning_of_management
from serve.settings import Settings

TRITON = ("127.0.0.1:1:2:3",)


@pytest.mark.parametrize("delivery", ["folder", "agents"])
def test_management_without_a_place_for_models_opens_less_and_says_so(delivery: str) -> None:
    opened = Settings(allow_management=True, triton=TRITON, model_repo="", delivery=delivery)
    warning = warning_of_management(opened)
    assert bool(warning) == (delivery == "folder")
    assert not warning or "--allow-management does not allow loading and unloading" in warning


@pytest.mark.parametrize(
    "settings",
    [
        Settings(triton=TRITON, model_repo=""),
        Settings(allow_management=True, triton=TRITON, model_repo="models"),
        Settings(allow_management=True, model_repo=""),
    ],
)
def test_there_is_no_warning_where_management_is_closed_or_opens_everything(
    settings: Settings,
) -> None:
    assert warning_of_management(settings) == ""
