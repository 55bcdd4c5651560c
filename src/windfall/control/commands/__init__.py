"""Commands about what is declared beside environments, queues, definitions and jobs; `control.events` has the others."""
