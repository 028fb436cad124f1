"""Recorded answers of large models, decoded again without them: step counts, or times on a shape."""
