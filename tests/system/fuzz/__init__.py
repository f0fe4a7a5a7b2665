"""Generated input against whole rules: the parser edge of a running gateway, keys, targets and header fields."""
