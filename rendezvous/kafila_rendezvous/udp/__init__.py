"""Datagrams: STUN answers, and the relay that carries what members can't send each other directly."""
