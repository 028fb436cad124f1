"""Where candidate tokens come from: the context, the target's earlier predictions, a small model."""
