"""A KServe transformer that changes nothing: its predictor is whatever stands behind it.

It runs in the environment of KServe, not in ours:

    .venv-kserve/bin/python -P kserve_transformer.py --model_name null --http_port 8080 \
        --predictor_host 127.0.0.1:8000 --predictor_protocol v2
"""

import argparse

from kserve import Model, ModelServer, model_server  # type: ignore[import-not-found]


class PassOn(Model):  # type: ignore[misc]
    """`preprocess`, `predict` and `postprocess` are KServe's own."""

    def load(self) -> bool:
        """There is nothing to load."""
        self.ready = True
        return self.ready


def main() -> None:
    """Serve until terminated; `ModelServer` reads the predictor's address from the arguments."""
    parser = argparse.ArgumentParser(parents=[model_server.parser])
    model = PassOn(parser.parse_args().model_name)
    model.load()
    ModelServer().start([model])


if __name__ == "__main__":
    main()
