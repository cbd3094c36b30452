"""A cluster as a picture: what there is (`cluster`), where it stands (`layout`), how it is written (`svg`). Pure."""
