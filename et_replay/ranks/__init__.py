"""What one rank's trace says of the other ranks: process groups, and the calls made in them."""
