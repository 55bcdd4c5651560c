"""Every operation of every service, asked rightly and in every wrong way that its model knows of."""
