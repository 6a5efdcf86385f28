"""The folder that a script's processes find first on their path, for its `sitecustomize`."""
