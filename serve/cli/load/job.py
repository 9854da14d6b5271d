"""`servegate load job`: the same load test from within a Kubernetes cluster, as a manifest."""

from typing import Annotated

import typer


def print_job(
    options: Annotated[
        list[str],
        typer.Argument(metavar="-- OPTIONS", help="What would stand behind `servegate load run`."),
    ],
    image: Annotated[str, typer.Option("--image", help="A Servegate image that has locust.")],
    name: Annotated[str, typer.Option("--name", help="Of the Job.")] = "run",
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Pods that call, beside one that leads them.")
    ] = 1,
    namespace: Annotated[str, typer.Option("--namespace", help="Where it runs.")] = "",
    key_secret: Annotated[
        str, typer.Option("--key-secret", help="A Secret whose entry `key` is the API key.")
    ] = "",
    cpu: Annotated[str, typer.Option("--cpu", help="Cores of a pod.")] = "1",
    memory: Annotated[str, typer.Option("--memory", help="Of a pod.")] = "1Gi",
    deadline: Annotated[
        str, typer.Option("--deadline", help="When it is given up; longer than the run.")
    ] = "1h",
) -> None:
    """Print a Kubernetes Job that makes a load test, and shares its report with the gateway.

    Example: servegate load job --image servegate --workers 3 -- --model digits --rate 2000
    """
    from serve.load.arrivals import parse_seconds
    from serve.load.job import Place, manifest

    place = Place(
        image=image,
        namespace=namespace,
        workers=workers,
        key_secret=key_secret,
        cpu=cpu,
        memory=memory,
        seconds=round(parse_seconds(deadline)),
    )
    print(manifest(name, options, place), end="")
