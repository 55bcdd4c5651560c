"""IAM as far as clients ask it about roles before they use them."""
