"""The workbench: what people do with models besides serving them; each package is a feature.

The gateway imports nothing from here. It finds the features by their names: their part of a control
plane in `serve/app/features.py`, their commands in `serve/cli/features.py`.
"""
