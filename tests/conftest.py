"""One torch thread: the fake models are so small that threads would only wait for each other."""

import torch

torch.set_num_threads(1)
