"""Neural fields: images as functions of their coordinates, and what their latents say of the class."""
