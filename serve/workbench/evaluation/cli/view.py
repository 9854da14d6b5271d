"""`servegate eval ls`, `show` and `gate`: what evaluations came to."""

from typing import Annotated
from urllib.parse import urlencode

import typer

from serve.cli.client import connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, table
from serve.workbench.evaluation.cli.options import PATH, Identity, path_of
from serve.workbench.evaluation.cli.run import finish, gates_error


def list_evaluations(
    admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False
) -> None:
    """List the evaluations on the gateway, newest first.

    Example: servegate eval ls
    """
    found = connect(admin_url, key_file).get(PATH)
    if json:
        as_json(found)
        return
    verdicts = {True: "passed", False: "failed", None: ""}
    table(
        ("ID", "STATE", "MODEL", "A", "B", "DATASET", "ROWS", "GATES", "CREATED"),
        [
            (
                one["id"],
                one["state"],
                one["model"],
                str(one["a"]),
                str(one["b"] or ""),
                one["dataset"],
                f"{one['done']}/{one['total']}",
                verdicts[one["passed"]],
                f"{one['created'][:10]} {one['created'][11:19]}Z",
            )
            for one in found
        ],
    )


def show_evaluation(
    identity: Identity,
    follow: Annotated[
        bool, typer.Option("--follow", help="Follow the progress until the evaluation finishes.")
    ] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Show the progress and the results of an evaluation.

    Example: servegate eval show 3f9c01ab27d4

    Example: servegate eval show 3f9c01ab27d4 --follow
    """
    admin = connect(admin_url, key_file)
    if follow:
        from serve.cli.endings import report_end
        from serve.cli.talk import talk

        talking = talk(json=json)
        with report_end(talking, lambda: f"stopped following; evaluation {identity} continues"):
            finish(admin, identity, talking)
        return
    page = admin.get(path_of(identity))
    if json:
        as_json(page)
        return
    from serve.workbench.evaluation.cli.report import lines

    if page["report"] is None:
        print(f"{page['id']}: {page['state']}, {page['done']} of {page['total']} rows")
    else:
        for line in lines(page):
            print(line)
    if page["why"]:
        print(f"  why: {page['why']}")


def judge(
    identity: Identity,
    conditions: Annotated[
        list[str],
        typer.Argument(metavar="CONDITION…", help="Conditions such as 'accuracy(b)>=0.95'."),
    ],
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Check conditions on the results of an evaluation. Exits with status 7 if one is not met.

    Example: servegate eval gate 3f9c01ab27d4 'accuracy(b)>=0.95' 'p99(b)<20ms'
    """
    query = urlencode([("gate", one) for one in conditions])
    found = connect(admin_url, key_file).get(f"{path_of(identity)}/gates?{query}")
    if json:
        as_json(found)
    else:
        table(
            ("GATE", "VALUE", "VERDICT"),
            [
                (
                    one["text"],
                    "" if one["value"] is None else f"{one['value']:.6g}",
                    "passed" if one["passed"] else "failed",
                )
                for one in found
            ],
        )
    error = gates_error(found)
    if error is not None:
        raise error
