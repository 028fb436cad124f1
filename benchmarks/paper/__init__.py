"""The paper's tables and figures, from whatever run folders there are: runs -> compare -> tables, claims, figures."""
