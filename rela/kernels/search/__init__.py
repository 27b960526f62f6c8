"""The kernels of one step of beam search on the GPU."""
