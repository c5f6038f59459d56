"""Local web page to explore a model: `serve.serve`, or `app.create_app` for another ASGI server.

Requests are untrusted: see `security`. The page in `page` is plain HTML, CSS and JavaScript.
"""
