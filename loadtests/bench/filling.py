"""Fills in the configuration files under `templates/`."""

import getpass
import os
from pathlib import Path
from string import Template

TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, **values: object) -> str:
    """A template with its placeholders filled in; a missing value raises KeyError."""
    return Template((TEMPLATES / template).read_text()).substitute(values)


def nginx_user() -> str:
    """Started by root, nginx changes to another user unless told not to."""
    return f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
