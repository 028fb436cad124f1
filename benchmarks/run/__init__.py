"""One cell: a model, a dataset and several methods, measured side by side."""
