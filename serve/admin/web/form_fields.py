"""What forms ask: with a reason, and of the state that their page showed."""

from dataclasses import replace
from typing import Annotated

from fastapi import Form

from serve.admin.web.page_templates import Visit
from serve.control.models import By

Reason = Annotated[str, Form(max_length=1000)]
IfMatch = Annotated[str, Form(max_length=100)]
Word = Annotated[str, Form(max_length=300)]


def as_asked(visit: Visit, reason: str = "", if_match: str = "") -> By:
    """Who sent a form, why, and which state they had seen (empty: whatever it is)."""
    by: By = replace(visit.by, reason=reason.strip() or visit.by.reason, if_match=if_match)
    return by
