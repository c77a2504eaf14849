"""Importing this before transformers makes it compute in float64 throughout: every conversion to float32 becomes one to float64."""

import torch

torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)
