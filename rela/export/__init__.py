"""Models for other runtimes: ONNX, torch.export and AOTInductor, each as an encoder and a decoder step with a cache."""
