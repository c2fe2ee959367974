"""From one UDP socket to links with neighbours; below the rooms lie addresses, STUN and the socket itself."""
