"""Deadline policies over recorded spot capacity: traces, a simulator, published policies, the optimum in hindsight."""
