"""From a matrix to a folder of proven wheels and their index."""
