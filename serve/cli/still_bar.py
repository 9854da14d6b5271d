"""A bar that is drawn only when it is told something: beside it, a machine is measured."""


class StillBar:
    """One bar with a text on standard error, gone at the end."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.BarColumn(bar_width=16),
            progress.TextColumn("{task.description}", markup=False),
            console=Console(stderr=True, highlight=False),
            auto_refresh=False,
            transient=True,
        )
        self._task: progress.TaskID | None = None

    def __repr__(self) -> str:
        return "<StillBar>"

    def show(self, text: str, done: float, total: float = 1.0) -> None:
        """Draw it anew, `done` of `total`."""
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task(text, total=total)
        self._progress.update(self._task, description=text, completed=done, total=total)
        self._progress.refresh()

    def close(self) -> None:
        """Leave nothing that moves."""
        self._progress.stop()
