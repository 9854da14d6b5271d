"""A replica: one running Triton server, known by its name and its four-part address."""

from dataclasses import dataclass

from serve.core.errors import Invalid


@dataclass(frozen=True, slots=True)
class Replica:
    """Where one Triton server answers. Ports are TCP port numbers; `pool` groups equal machines."""

    name: str
    host: str
    http_port: int
    grpc_port: int
    metrics_port: int
    pool: str = "default"

    @classmethod
    def parse(cls, text: str, *, name: str, pool: str = "default") -> "Replica":
        """Read `HOST:HTTP:GRPC:METRICS`, as `--triton` takes it; IPv6 hosts stand in brackets."""
        host, *ports = text.rsplit(":", 3)
        host = host.strip("[]")
        if len(ports) != 3 or not host or not all(_is_port(port) for port in ports):
            raise Invalid(
                f"'{text}' is not the address of a Triton server",
                why="the form is HOST:HTTP:GRPC:METRICS, with ports from 1 to 65535",
                try_this="--triton 127.0.0.1:8000:8001:8002",
            )
        http, grpc, metrics = (int(port) for port in ports)
        return cls(name, host, http, grpc, metrics, pool)

    @classmethod
    def named(cls, text: str, *, default: str = "") -> "Replica":
        """Read `[NAME=]ADDRESS[@POOL]`; `default` is the name where there is none."""
        name, _, rest = text.rpartition("=")
        address, _, pool = rest.partition("@")
        if not (name or default):
            raise Invalid(
                f"the replica '{text}' has no name",
                why="the form is NAME=HOST:HTTP:GRPC:METRICS@POOL",
                try_this="gpu-1=10.0.0.7:8000:8001:8002@default",
            )
        return cls.parse(address, name=name or default, pool=pool or "default")

    def __str__(self) -> str:
        return self.address

    @property
    def address(self) -> str:
        """The same four-part form that `parse` reads."""
        return f"{self._host}:{self.http_port}:{self.grpc_port}:{self.metrics_port}"

    @property
    def http_url(self) -> str:
        """The base of Triton's HTTP endpoints, without a trailing slash."""
        return f"http://{self._host}:{self.http_port}"

    @property
    def grpc_target(self) -> str:
        """The target of a gRPC channel."""
        return f"{self._host}:{self.grpc_port}"

    @property
    def metrics_url(self) -> str:
        """Where Triton's Prometheus text is read."""
        return f"http://{self._host}:{self.metrics_port}/metrics"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536
