"""A local page to explore neighbours: `run.serve` a saved model, or `app.create_app` for a server of your own.

Whatever comes from the browser is taken as hostile: see `safety`. The page in `page` is plain HTML, CSS and scripts.
"""
