"""What the users of a benchmark ask for: a long story each, of another thing."""

TOPICS = ("a river", "a clock", "a lighthouse", "a bridge", "a map", "a mill", "a bell", "a well")


def story_prompts(users: int) -> list[str]:
    return [f"Write a long story about {TOPICS[user % len(TOPICS)]}." for user in range(users)]
