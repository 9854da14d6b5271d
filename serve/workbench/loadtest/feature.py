"""Reports of load tests as a feature of a control plane. The tests run elsewhere, from the CLI."""

import time

from serve.admin.api.features import FeatureWeb, MenuEntry
from serve.app.features import Feature, Plane
from serve.workbench.loadtest.stored_reports import LoadReports


def build(plane: Plane) -> Feature:
    """The reports that were shared."""
    reports = LoadReports(plane.storage.objects, wall=time.time)
    return Feature(services={LoadReports: reports}, web=web)


def web() -> FeatureWeb:
    """The routers and pages."""
    from serve.workbench.loadtest import api
    from serve.workbench.loadtest import web as pages

    return FeatureWeb(
        name="loadtest",
        api=(api.router,),
        pages=(pages.router,),
        templates="serve.workbench.loadtest",
        menu=(MenuEntry("/loadtests", "Load tests", "/live"),),
    )
