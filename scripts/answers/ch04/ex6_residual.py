"""The largest value of a stream."""


def place(x):
    at = x.abs().flatten().argmax().item()
    return [at // x.shape[1], at % x.shape[1]]


def ratio(x):
    sizes = x.double().abs().flatten().sort().values
    n = len(sizes)
    median = (sizes[(n - 1) // 2] + sizes[n // 2]) / 2
    return (sizes[-1] / median).item()
