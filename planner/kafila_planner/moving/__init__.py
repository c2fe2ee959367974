"""What it takes to bring a plan about, from what members hold already, and plans that take less."""
