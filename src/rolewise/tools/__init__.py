"""Tool calls: how a model is told of tools, and how its calls are read."""
