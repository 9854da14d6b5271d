"""The command line that does the same again, as a report keeps it: without secrets."""

import shlex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import typer

from serve.core.commands import addressed

_GIVEN = ("COMMANDLINE", "ENVIRONMENT")
_PORTS = {"url": "http", "grpc_url": "grpc", "metrics_url": "metrics", "admin_url": "admin"}
_ITS_OWN = ("name", "json")  # of one run, not of what is done again


def command_of(context: typer.Context, **found: str) -> str:
    """What was given, on the command line or by the environment, in the order of the options.

    `found` are the addresses that were used, by the option's name: they are in the command where
    they are not the defaults, so that it can be run in any folder.
    """
    words = context.command_path.split()
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in _ITS_OWN or source is None or source.name not in _GIVEN or found.get(name):
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            words += _texts(value)
        elif value is True:
            words.append(parameter.opts[0])
        elif value is not False:
            for text in _texts(value):
                words += [parameter.opts[0], text]
    urls = {_PORTS[name]: _without_user(url) for name, url in found.items()}
    return addressed(shlex.join(words), **urls)


def _texts(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in _texts(one)]
    return [] if value is None else [_without_user(str(value))]


def _without_user(text: str) -> str:
    """An address without the name and password that may stand in it."""
    if "://" not in text or "@" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return text.partition("://")[0]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
