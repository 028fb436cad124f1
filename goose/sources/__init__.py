"""Where candidate tokens come from. Sources propose ids; they never see a tree or a model."""
