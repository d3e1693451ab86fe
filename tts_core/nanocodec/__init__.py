"""NanoCodec: NVIDIA's 22.05 kHz, 1.89 kbps, 21.5 frames a second codec, decoded as a stream.

``fsq`` is plain numpy and safe to import anywhere; the other modules load torch or ONNX Runtime only when
they are used. ``service.CodecService`` runs the codec in processes of its own.
"""
