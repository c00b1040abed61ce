"""Adapters to training frameworks. Each module imports its framework when it is used, and none imports another.

    torch_ddp       PyTorch with DistributedDataParallel: a loop of your own
    transformers_   Hugging Face Trainer: a callback
    lightning_      Lightning: a callback
    keras_          Keras: a callback and a data set
    jax_            JAX: a tree of arrays

In every one the ranks agree over the SDK's own connection (`ranks.Star`), so no framework's collectives are needed
to stop, and a framework that is not here needs only `Training.resume`, `step_done` and `finish`.
"""
