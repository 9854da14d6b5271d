"""Writes the pipelines as YAML for a cluster: `python examples/kubeflow/compile.py`.

REGISTRY=registry.example/ml/ in the environment puts one's own registry before the images that one
builds (Containerfile).
"""

import argparse
from pathlib import Path

import pipeline
from kfp import compiler

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Compile both into a folder."""
    parser = argparse.ArgumentParser(description="Write digits.yaml and cifar10.yaml.")
    parser.add_argument("--out", type=Path, metavar="DIR", default=HERE)
    out = parser.parse_args().out
    for name in ("digits", "cifar10"):
        function = getattr(pipeline, f"{name}_pipeline")
        compiler.Compiler().compile(function, str(out / f"{name}.yaml"))


if __name__ == "__main__":
    main()
