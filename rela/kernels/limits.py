"""What the attention kernels take, for those who choose a path: imports neither Triton nor a kernel."""

import torch

TYPES = (torch.float32, torch.bfloat16, torch.float16)  # of queries, keys and values
LARGEST_HEAD = 256
MOST_DECODE_ROWS = 64  # queries of the heads that share a key head
