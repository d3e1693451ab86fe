"""For tests: a Triton backend named "cpu" that compiles nothing.

On PYTHONPATH it makes vLLM believe that Triton works on this machine, so that Model Runner V2 is chosen; its
kernels, unchanged, then run in Triton's interpreter (TRITON_INTERPRET=1).
"""
