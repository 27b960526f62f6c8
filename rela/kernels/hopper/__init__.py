"""The attention kernels once more for Hopper GPUs, in Gluon: asynchronous copies and warp groups."""
