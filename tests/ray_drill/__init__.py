"""The drill over Ray: real jobs on the nodes of a real cluster, whose raylets, head and nodes are killed meanwhile."""
