"""What a run leaves on the disk: run folders, the lines in them, grids of runs, and how earlier versions are read."""
