"""Works on many small files in a directory until its standard input ends; then compares what should be there with what is
there, in this directory and as another mount shows it. Prints how long the longest operation took, in seconds.

    python3 metas.py SEED DIRECTORY THE_SAME_DIRECTORY_AT_ANOTHER_MOUNT

It is a process of its own, because a daemon that is started by a process with files of a mount open waits for the mount.
"""

import os
import random
import select
import sys
import time


def step(prng, top, tree, number):
    some = prng.choice(list(tree)) if tree else None
    what = prng.randrange(6) if some else 5
    path = os.path.join(top, some) if some else None
    if what == 0:
        os.remove(path)
        del tree[some]
    elif what == 1:
        new = f"renamed{number}"
        os.rename(path, os.path.join(top, new))
        tree[new] = tree.pop(some)
    elif what == 2:
        more = prng.randbytes(500)
        with open(path, "ab") as file:
            file.write(more)
            file.flush()
            os.fsync(file.fileno())
        tree[some] += more
    elif what == 3:
        with open(path, "rb") as file:
            assert file.read() == tree[some], f"{some} differs"
    else:
        name, data = f"file{number}", prng.randbytes(prng.randrange(9000))
        with open(os.path.join(top, name), "wb") as file:
            file.write(data)
        tree[name] = data


def compare(top, tree):
    names = sorted(os.listdir(top))
    assert names == sorted(tree), f"{top}: {len(names)} names are there, {len(tree)} should be"
    for name, data in tree.items():
        with open(os.path.join(top, name), "rb") as file:
            assert file.read() == data, f"{top}/{name} differs"


def main():
    seed, top, other = sys.argv[1:]
    prng, tree, longest, number = random.Random(seed), {}, 0.0, 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        step(prng, top, tree, number)
        longest = max(longest, time.monotonic() - began)
        number += 1
    assert number > 50, f"{number} operations are no work"
    compare(top, tree)
    compare(other, tree)
    print(f"{longest:.2f}")


main()
