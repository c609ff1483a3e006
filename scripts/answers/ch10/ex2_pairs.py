"""The loop with a cache, and what it counts."""


def loop(feed, prompt, tokens, feed_last):
    made, new = [], list(prompt)
    for _ in range(tokens):
        new = [int(feed(new)[-1].argmax())]
        made += new
    if feed_last:
        feed(new)
    return made


def positions_naive(P, m):
    return m * P + m * (m - 1) // 2


def pairs_held(P, m, feed_last):
    return P + m - 1 + feed_last


def most_new(n, P, feed_last):
    return n - P + 1 - feed_last
