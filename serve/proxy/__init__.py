"""The data plane: from a call to an attempt on one replica, by one snapshot, in memory only."""
