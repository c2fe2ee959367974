"""What is planned: members, blocks and round trips, and what a stage, a hop and a whole ring cost."""
