"""Install the peers."""

from benchmarks.peers import install

if __name__ == "__main__":
    install()
