"""The harness around the engine: data in, timed cells, records, metrics, tables. Depends on goose/ and baselines/."""
