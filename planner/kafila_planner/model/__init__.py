"""What is planned: members, blocks and links, and what a stage, a hop and a whole ring cost."""
