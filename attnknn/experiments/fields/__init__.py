"""Neural fields: networks that map pixel coordinates to values, and classification from their latents."""
