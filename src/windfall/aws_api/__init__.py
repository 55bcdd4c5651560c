"""The wire: AWS's own APIs, served so that unmodified clients work. Each service has its own folder."""
