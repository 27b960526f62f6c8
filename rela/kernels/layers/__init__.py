"""Fused layers beside attention: norms, the rectified linear layer, the loss, the centring of keys."""
