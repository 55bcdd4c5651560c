"""Commands by what they are about; `control.events` has those of jobs, and the reports of engines."""
