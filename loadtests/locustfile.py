"""Users of the demo's model, for locust itself: its own charts, its own closed loop.

    make demo
    locust -f loadtests/locustfile.py --host http://127.0.0.1:8000 --headless -u 4 -t 10s

gRPC is expected on the same host at the next port, as Triton has it: 8001 for 8000. For another one
set SERVEGATE_GRPC_URL. Names on the command line choose among the users: `… -t 10s Crowd`. Change
`model` for another one.
Latencies that hide nothing, and the server's side of it, are in `servegate load run`.
"""

import os

from locust import between, task

from serve.workbench.loadtest.users import (
    KServeGrpcUser,
    KServeHttpUser,
    OpenLoopUser,
    TFServingUser,
    grpc_url_of,
)

MODEL = "digits"


class Visitor(KServeHttpUser):
    """Thinks for a moment between two questions."""

    model = MODEL
    weight = 3
    wait_time = between(0.05, 0.2)

    @task
    def infer(self):
        self.call()


class Colleague(KServeGrpcUser):
    """Speaks gRPC, to a port of its own."""

    model = MODEL
    wait_time = between(0.05, 0.2)

    def on_start(self):
        self.target = os.environ.get("SERVEGATE_GRPC_URL") or grpc_url_of(self.host)

    @task
    def infer(self):
        self.call()


class Veteran(TFServingUser):
    """Has never heard of anything but TensorFlow Serving."""

    model = MODEL
    wait_time = between(0.05, 0.2)

    @task
    def predict(self):
        self.call()


class Crowd(OpenLoopUser, KServeHttpUser):
    """Twenty calls per second, at random times, that wait for nobody."""

    model = MODEL
    rate = 20
