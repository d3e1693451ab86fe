"""The GEPARD engine: text and a speaker prefix in, frames of 32 codec codes out, one per step of the model.

``config``, ``prompt``, ``sampling`` and ``frames`` need no model stack; the rest may import torch.
"""
