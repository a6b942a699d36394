"""The project in `site` is run by Django's own runner, in processes of its own."""

collect_ignore = ["site"]
