"""All pages, and how to reach each. A test fails when the site has one that is not here."""

from dataclasses import dataclass

from fastapi.routing import APIRoute
from golden.forms import all_web

from browser.scene import HELD_OUT, HOSTILE, HOSTILE_DATA, Stage
from serve.admin.web import site

# GET routes that are no page of their own: parts that htmx fetches into pages, and files.
PARTS = frozenset(
    {
        "/static/{version}/{name:path}",
        "/try/{model}/fields",
        "/runs/{identity}/snippets",
        "/evaluations/sides",
        "/evaluations/{identity}/classes",
        "/evaluations/{identity}/report",
        "/evaluations/{identity}/rows",
        "/models/{model}/versions/{number}/batching/seen",
        "/models/{model}/versions/{number}/batching/progress",
    }
)
VERSION = "/models/{model}/versions/{number}"
BATCHING = f"{VERSION}/batching"


@dataclass(frozen=True, slots=True)
class Listed:
    """A page: its route, and a path on the stage; `h1` is a part of its heading."""

    route: str
    path: str
    h1: str = ""

    def on(self, stage: Stage) -> str:
        return self.path.format_map(stage)


PAGES = {
    "models": Listed("/", "/", "Models"),
    "model": Listed("/models/{model}", "/models/digits", "digits"),
    "model, hostile": Listed("/models/{model}", "/models/{hostile}", HOSTILE),
    "model, broken": Listed("/models/{model}", "/models/broken", "broken"),
    "version": Listed(VERSION, "/models/digits/versions/2?against=1", "digits"),
    "version, hostile": Listed(VERSION, "/models/{hostile}/versions/1", HOSTILE),
    "version, not published": Listed(VERSION, "/models/plain/versions/1", "plain"),
    "batching": Listed(BATCHING, "/models/digits/versions/2/batching", "digits"),
    "batching, hostile": Listed(BATCHING, "/models/{hostile}/versions/1/batching", HOSTILE),
    "batching, not published": Listed(BATCHING, "/models/plain/versions/1/batching", "plain"),
    "batching as it came": Listed(
        f"{BATCHING}/back", "/models/digits/versions/2/batching/back?to=own", "Restore"
    ),
    "traffic": Listed("/traffic/{model}", "/traffic/digits", "digits"),
    "traffic, hostile": Listed("/traffic/{model}", "/traffic/{hostile}", HOSTILE),
    "go back": Listed(
        "/traffic/{model}/rollback/{revision}", "/traffic/digits/rollback/{revision}", "Roll back"
    ),
    "choose what to try": Listed("/try", "/try", "Try"),
    "try": Listed("/try/{model}", "/try/digits?a=1&b=2", "digits"),
    "try, hostile": Listed("/try/{model}", "/try/{hostile}", HOSTILE),
    "tries": Listed("/runs", "/runs", "Run history"),
    "a try": Listed("/runs/{identity}", "/runs/{tried}", "digits"),
    "a try, hostile": Listed("/runs/{identity}", "/runs/{hostile_try}", HOSTILE),
    "evaluations": Listed("/evaluations", "/evaluations", "valuat"),
    "evaluation": Listed("/evaluations/{identity}", "/evaluations/{evaluation}", "digits"),
    "evaluation, hostile": Listed(
        "/evaluations/{identity}", "/evaluations/{hostile_evaluation}", HOSTILE
    ),
    "datasets": Listed("/datasets", "/datasets", "Datasets"),
    "dataset": Listed("/datasets/{name}", "/datasets/{data}", HELD_OUT),
    "dataset, hostile": Listed("/datasets/{name}", "/datasets/{hostile_data}", HOSTILE_DATA),
    "load tests": Listed("/loadtests", "/loadtests", "Load tests"),
    "load test": Listed("/loadtests/{name}", "/loadtests/{report}"),
    "load tests compared": Listed(
        "/loadtests/compare", "/loadtests/compare?a={earlier}&b={report}"
    ),
    "upload": Listed("/upload", "/upload", "pload"),
    "reference": Listed("/reference", "/reference", "API"),
    "reference of a part": Listed("/reference/{slug}", "/reference/models"),
    "live": Listed("/live", "/live", "Live"),
    "nothing there": Listed("", "/models/nothing", "nothing"),
}
GUARDED = {"login": Listed("/login", "/login", "Log in")}


def routes() -> set[str]:
    return {
        route.path
        for router in site.routers(all_web())
        for route in router.routes
        if isinstance(route, APIRoute) and "GET" in route.methods
    }
