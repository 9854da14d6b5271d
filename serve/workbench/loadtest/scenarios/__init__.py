"""Ready scenarios: what is done to a model, and how one sees whether it was borne well."""
