"""From members to a serving ring: measure, plan, link, fetch, serve, and who is dead meanwhile."""
