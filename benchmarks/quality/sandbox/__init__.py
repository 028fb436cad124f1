"""Where generated code is confined."""
