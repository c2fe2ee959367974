"""Having a router forward a port, by PCP, NAT-PMP or UPnP."""
