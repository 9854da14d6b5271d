"""The reference of the admin API, made on the server from what the application says of itself."""

from fastapi import APIRouter, Response

from serve.admin.web.openapi import ApiGroup, groups
from serve.admin.web.page_templates import Visit, Visiting, page
from serve.core.errors import NotHere

router = APIRouter(include_in_schema=False)


@router.get("/reference")
async def show_all(visit: Visiting) -> Response:
    """Every operation on one line."""
    return page(visit, "reference.html", groups=_groups(visit))


@router.get("/reference/{slug}")
async def show_group(slug: str, visit: Visiting) -> Response:
    """The operations of one tag, with all that is said of them."""
    found = _groups(visit)
    group = next((one for one in found if one.slug == slug), None)
    if group is None:
        raise NotHere(f"the API reference has no section '{slug[:100]}'", try_this="/reference")
    return page(
        visit,
        "reference_group.html",
        group=group,
        groups=found,
        base=str(visit.request.base_url),
        shows_key=visit.needs_key,
    )


def _groups(visit: Visit) -> tuple[ApiGroup, ...]:
    """They do not change while the application lives, so they are made once."""
    state = visit.request.app.state
    if not hasattr(state, "reference"):
        state.reference = groups(visit.request.app.openapi())
    found: tuple[ApiGroup, ...] = state.reference
    return found
