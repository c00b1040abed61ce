"""Real, small, elastic trainers: programs of their own, run by the demo, tests and benchmarks.

    python -m horae.demo.trainers.mlp        NumPy, data-parallel over rank processes
    python -m horae.demo.trainers.torch_mlp  the same model under PyTorch DistributedDataParallel (gloo)

Both learn handwritten digits (the data set that ships inside scikit-learn) and use `horae.elastic`.
"""
