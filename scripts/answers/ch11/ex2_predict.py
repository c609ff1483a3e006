"""The passes of a request, and their least time."""


def passes(prompt, new):
    return [[prompt, 0]] + [[1, prompt + i] for i in range(new - 1)]


def predict(parameters, prompt, new, flop_per_s, bytes_per_s, number):
    flops = moved = 0
    seconds = []
    for fed, _ in passes(prompt, new):
        work, read = 2 * parameters * fed, number * parameters
        flops += work
        moved += read
        seconds.append(max(work / flop_per_s, read / bytes_per_s))
    return {"flops": float(flops), "bytes": float(moved), "prefill_s": seconds[0], "decode_s": float(sum(seconds[1:]))}


def error_percent(said, measured):
    return 100 * abs(said - measured) / measured
