"""A cover over any cache policy that keeps its states on a disk as well, where the next process finds them."""
