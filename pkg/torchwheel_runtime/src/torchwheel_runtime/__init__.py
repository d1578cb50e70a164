"""What an installed extension brings: finds, builds and loads its library; the doctor."""

__version__ = "0.1.0"
