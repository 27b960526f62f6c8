"""Where there is no CUDA device, Triton kernels run in Triton's interpreter, on tiny shapes."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
