"""A classifier with what people have around it: how pictures and rows become vectors, and what they look like."""
