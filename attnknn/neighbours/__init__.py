"""Embedding spaces with stored neighbours and neighbour statistics."""
