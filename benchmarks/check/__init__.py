"""The engine on its own (exact? how near the limit?) and against its peers: device_check.py and perf.py."""
