"""The commands of a clone, and what builds the site of the documents."""
