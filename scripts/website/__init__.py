"""The documents as a site: `python3 scripts/docs` builds it. Nothing of this is part of the package."""
