"""Which architectures are on offer, and all that is known of each without its code: names, rules, configuration."""
