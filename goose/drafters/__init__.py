"""Drafters that propose trees over several sources: GOOSE and goose_opt."""
