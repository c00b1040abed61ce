"""What people and apps' agents ask of the arbiter, and whether they may."""
