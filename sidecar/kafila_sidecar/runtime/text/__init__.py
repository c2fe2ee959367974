"""From conversations to token ids, and from token ids to text: templates, sampling, stop strings."""
