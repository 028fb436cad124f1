"""What a forward of n nodes costs on this machine: measuring it, keeping it as a curve, sizing trees by it."""
