"""Text for speech: streaming segmentation, cleaning and normalisation, with offsets kept throughout."""
