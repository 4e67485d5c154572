"""Framework items: PyTorch's graphs and compiled functions."""

import torch

from fw_torch import DEVICE, normal


def mlp(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256),
                               torch.nn.Linear(256, 10)).to(DEVICE)


def train_step(model, optimiser, x, target):
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(model(x), target)
    loss.backward()
    optimiser.step()
    return loss


def torch_compile(found):
    import torch._inductor.config as inductor
    # Choices by timing would differ from run to run.
    for option in ('deterministic',):
        if hasattr(inductor, option):
            setattr(inductor, option, True)
    inductor.fx_graph_cache = False
    x, w, b = normal(128, 300), normal(300, 70, seed=2), normal(70, seed=3)

    def pointwise(x):
        return torch.sin(x) * torch.exp(-x.abs()) + x.clamp(-1, 1)

    def fused(x, w, b):
        return torch.softmax(torch.nn.functional.gelu(x @ w + b), -1).sum(0)

    found.keep('pointwise', lambda: torch.compile(pointwise)(x))
    found.keep('reduction', lambda: torch.compile(fused)(x, w, b))
    found.keep('dynamic shapes', lambda: [torch.compile(pointwise, dynamic=True)(x[:n])
                                          for n in (3, 50, 77)])

    def with_graphs():
        compiled = torch.compile(fused, mode='reduce-overhead')
        # A clone: the graph's memory is its own.
        return [compiled(x * n, w, b).clone() for n in range(4)]

    found.keep('reduce-overhead', with_graphs)

    def training():
        model = mlp()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        compiled = torch.compile(model)
        losses = [train_step(compiled, optimiser, normal(32, 64, seed=n),
                             normal(32, 10, seed=n + 9)) for n in range(4)]
        return [losses, list(model.parameters())]

    found.keep('training', training)


def warm_up(step):
    """PyTorch asks for some runs on a side stream before a capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)


def cuda_graphs(found):
    weights, x = normal(64, 64), normal(32, 64, seed=2)

    def work():
        return torch.tanh(x @ weights).sum(1)

    warm_up(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()
    # A second graph in the memory of the first.
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=graph.pool()):
        doubled = out * 2

    def replays():
        results = []
        for n in range(10):
            x.copy_(normal(32, 64, seed=n))
            graph.replay()
            second.replay()
            results += [out.clone(), doubled.clone()]
        return results

    found.keep('replays', replays)

    def random_numbers():
        torch.cuda.manual_seed(7)
        noisy = torch.cuda.CUDAGraph()
        with torch.cuda.graph(noisy):
            dropped = torch.nn.functional.dropout(x, 0.5)
        results = []
        for _ in range(3):
            noisy.replay()
            results.append(dropped.clone())
        return results

    found.keep('random numbers', random_numbers)
    found.keep('whole training step', graphed_training)

    def side_streams():
        other = torch.cuda.Stream()
        forked = torch.cuda.CUDAGraph()
        with torch.cuda.graph(forked):
            first = x + 1
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                beside = x * 3
            torch.cuda.current_stream().wait_stream(other)
            joined = first + beside
        forked.replay()
        return joined.clone()

    found.keep('fork and join', side_streams)
    graph.reset()
    found.keep('after a reset', lambda: work())

    def refused():
        bad = torch.cuda.CUDAGraph()
        with torch.cuda.graph(bad):
            return x.sum().item()

    # Waiting while capturing is an error; the next capture works.
    found.keep('a wait in a capture', refused)
    found.keep('and after it', side_streams)


def graphed_training():
    model = mlp()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, target = normal(32, 64), normal(32, 10, seed=2)
    warm_up(lambda: train_step(model, optimiser, x, target))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train_step(model, optimiser, x, target)
    losses = []
    for n in range(5):
        x.copy_(normal(32, 64, seed=20 + n))
        graph.replay()
        losses.append(loss.clone())
    return [losses, list(model.parameters())]


def graphed_callables(found):
    model = mlp()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    graphed = torch.cuda.make_graphed_callables(model, (normal(32, 64).requires_grad_(False),))

    def training():
        losses = [train_step(graphed, optimiser, normal(32, 64, seed=n), normal(32, 10, seed=n + 9))
                  .detach().clone() for n in range(6)]
        return [losses, list(model.parameters())]

    found.keep('training', training)
    graphed.eval()
    found.keep('without gradients', lambda: graphed(normal(32, 64, seed=40)))
