"""A KServe transformer beside the gateway and nginx, in front of the same upstream.

A transformer is how KServe puts Python between a client and a model server; this one passes
everything on. It has an environment of its own (`scripts/kserve-deps.sh`), because KServe
pins other versions of packages that we use, too.
"""

import argparse
import http.client
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from loadtests.bench import machine, rows, tables
from loadtests.bench.gateway import start_gateway
from loadtests.bench.generators import INFER
from loadtests.bench.measuring import Measured, Plan, measure
from loadtests.bench.peers import start_peers
from loadtests.bench.results import FOLDER, save_measured
from loadtests.bench.start import ROOT, free_ports
from loadtests.bench.started import Programs, listening
from loadtests.bench.targets import DIRECT, REFERENCE, Target
from loadtests.bench.upstreams import Upstreams, start_cheap, start_tritons
from loadtests.bench.verifying import Wrong

PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
PROGRAM = Path(__file__).parent / "kserve_transformer.py"
ROW = "http-64B-json"  # JSON is what a transformer's users send


def start_transformer(programs: Programs, upstreams: Upstreams, *, cores: machine.Cores) -> Target:
    """Start it with one worker and without a log line per call."""
    (port,) = free_ports(1)
    argv = (
        *(*cores.proxy, str(PYTHON), "-P", str(PROGRAM), "--model_name", "null"),
        *("--http_port", str(port), "--enable_grpc", "false", "--workers", "1"),
        *("--predictor_host", f"127.0.0.1:{upstreams.http[0]}", "--predictor_protocol", "v2"),
        *("--enable_latency_logging", "false"),
    )
    process = programs.start("kserve", argv)
    programs.wait("kserve", process, partial(listening, port))
    return Target("kserve", f"http://127.0.0.1:{port}", "", process.pid)


def check_answer(target: Target, row: rows.Row) -> None:
    """One call has to get the upstream's values back; raises Wrong."""
    request = rows.payload(row)
    connection = http.client.HTTPConnection(urlsplit(target.http).netloc, timeout=30)
    connection.request("POST", INFER, request.body, dict(request.fields))
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200 or b'"y"' not in body:
        raise Wrong(f"{target.name}: HTTP {answer.status}: {body[:300]!r}")


def compare(plan: Plan) -> Measured:
    """Start everything, check an answer of each, measure."""
    cores = machine.cores()
    (row,) = rows.choose([ROW], quick=False)
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as name, Programs(Path(name)) as programs:
        folder = Path(name)
        folder.chmod(0o755)
        tritons = start_tritons(programs, cores=cores, folder=folder)
        upstreams = start_cheap(programs, tritons, cores=cores, folder=folder)
        ours = start_gateway(programs, upstreams, cores=cores, folder=folder).target
        peers = start_peers(programs, upstreams, cores=cores, folder=folder)
        nginx = next(peer for peer in peers if peer.name == REFERENCE)
        direct = Target(DIRECT, f"http://127.0.0.1:{upstreams.http[0]}", "")
        targets = (direct, nginx, ours, start_transformer(programs, upstreams, cores=cores))
        for target in targets:
            check_answer(target, row)
        return measure(row, targets, plan, cores=cores, folder=folder)


def main() -> int:
    """Measure and print; exit status 1 when a call failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds, seconds = (2, 1.0) if parser.parse_args().quick else (5, 3.0)
    if not PYTHON.exists():
        print("error: KServe is not installed\n  try: make bench-peers", file=sys.stderr)
        return 2
    one = compare(Plan(rounds, seconds, REFERENCE, DIRECT))
    print(tables.text(one))
    cpu = {line.target: line.cpu for line in one.lines}
    ours, theirs = cpu["servegate"], cpu["kserve"]
    if ours and theirs:
        print(f"\nthe gateway's CPU time per call is 1/{theirs / ours:.0f} of the transformer's")
    path = FOLDER / f"kserve-{time.strftime('%Y%m%d-%H%M%S')}.json"
    save_measured(one, path)
    print(f"results: {path}")
    return 1 if any(line.failed for line in one.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
