"""`servegate load job`: the same load test from within a Kubernetes cluster, as a manifest."""

from typing import Annotated

import typer


def print_job(
    options: Annotated[
        list[str],
        typer.Argument(metavar="-- OPTIONS", help="Options of `servegate load run`."),
    ],
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="Servegate image that includes locust.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the Job.")] = "run",
    workers: Annotated[
        int,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Number of worker pods, in addition to the coordinating pod.",
        ),
    ] = 1,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAMESPACE", help="Namespace of the Job.")
    ] = "",
    key_secret: Annotated[
        str,
        typer.Option(
            "--key-secret",
            metavar="NAME",
            help="Kubernetes Secret that contains the API key as the entry `key`.",
        ),
    ] = "",
    cpu: Annotated[
        str, typer.Option("--cpu", metavar="CORES", help="CPU cores of each pod.")
    ] = "1",
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of each pod.")
    ] = "1Gi",
    deadline: Annotated[
        str,
        typer.Option(
            "--deadline",
            metavar="DURATION",
            help="Time limit of the Job; must be longer than the load test.",
        ),
    ] = "1h",
) -> None:
    """Print a Kubernetes Job that runs a load test.

    The Job uploads its report to the gateway.

    Example: servegate load job --image servegate --workers 3 -- --model digits --rate 2000
    """
    from serve.core.texts import parse_seconds
    from serve.workbench.loadtest.job import LoadJobPlace, manifest

    place = LoadJobPlace(
        image=image,
        namespace=namespace,
        workers=workers,
        key_secret=key_secret,
        cpu=cpu,
        memory=memory,
        seconds=round(parse_seconds(deadline)),
    )
    print(manifest(name, options, place), end="")
