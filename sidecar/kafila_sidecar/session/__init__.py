"""One session as its members live it: who belongs, what they tell each other, what happens next."""
