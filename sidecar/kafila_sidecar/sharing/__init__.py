"""Weights from member to member: what each holds, who vouches for it, and folders that only one of them has."""
