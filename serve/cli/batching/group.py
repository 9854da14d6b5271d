"""`servegate batching`: see, check, tune and change how versions are batched."""

import typer

from serve.cli.batching import lint, set, show, tune

app = typer.Typer(
    no_args_is_help=True,
    help="See and change how a version's calls are put together into batches.\n\n"
    "Example: servegate batching show digits",
    rich_markup_mode=None,
)
app.command("show")(show.show)
app.command("lint")(lint.lint)
app.command("set")(set.set_configuration)
app.command("tune")(tune.tune)
