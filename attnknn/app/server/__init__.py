"""A local page to explore neighbours: `serve.serve` a saved model, or `app.create_app` for another ASGI server.

Requests are untrusted: see `security`. The page in `page` is plain HTML, CSS and JavaScript.
"""
