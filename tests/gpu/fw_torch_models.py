"""Framework items: training and inference with PyTorch, torchvision and transformers."""

import torch

from fw_torch import DEVICE, normal

functional = torch.nn.functional


def small_network():
    torch.manual_seed(8)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 16 * 16, 10)).to(DEVICE)


def labels(count, seed=1, classes=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, classes, (count,), generator=generator).to(DEVICE)


def amp_training(found):
    for dtype in (torch.float16, torch.bfloat16):
        model = small_network()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        scaler = torch.amp.GradScaler('cuda', enabled=dtype == torch.float16)
        losses = []
        for step in range(6):
            with torch.autocast('cuda', dtype=dtype):
                loss = functional.cross_entropy(model(normal(32, 3, 32, 32, seed=step)), labels(32))
            optimiser.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimiser)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimiser)
            scaler.update()
            losses.append(loss.item())
        name = str(dtype).rpartition('.')[2]
        found.keep(f'{name} losses', losses)
        found.keep(f'{name} parameters', lambda model=model: list(model.state_dict().values()))
        found.keep(f'{name} scale', lambda scaler=scaler: scaler.get_scale())


def optimisers(found):
    kinds = {
        'sgd': lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
        'adamw fused': lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
        'adamw foreach': lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
        'adam single': lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
        'rmsprop': lambda p: torch.optim.RMSprop(p, lr=1e-3),
        'adagrad': lambda p: torch.optim.Adagrad(p, lr=1e-2),
        'lbfgs': lambda p: torch.optim.LBFGS(p, max_iter=4),
    }
    x, target = normal(64, 50), labels(64)
    for name, make in kinds.items():
        def train(make=make):
            torch.manual_seed(3)
            model = torch.nn.Sequential(torch.nn.Linear(50, 80), torch.nn.Tanh(),
                                        torch.nn.Linear(80, 10)).to(DEVICE)
            optimiser = make(model.parameters())

            def closure():
                optimiser.zero_grad()
                loss = functional.cross_entropy(model(x), target)
                loss.backward()
                return loss

            losses = [optimiser.step(closure).item() for _ in range(5)]
            return [losses, list(model.parameters())]

        found.keep(name, train)


class Numbers(torch.utils.data.Dataset):
    """Items that worker processes make, from their index alone."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def dataloader(found):
    # Workers are forked while CUDA is in use, which is what most programs do.
    torch.zeros(1, device=DEVICE)
    for workers, context in ((0, None), (3, 'fork'), (2, 'spawn')):
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=32, num_workers=workers, pin_memory=True,
            persistent_workers=workers > 0, multiprocessing_context=context)
        model = small_network()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        losses, pinned = [], []
        for _ in range(2):
            for images, classes in loader:
                pinned.append(images.is_pinned())
                images = images.to(DEVICE, non_blocking=True)
                classes = classes.to(DEVICE, non_blocking=True)
                loss = functional.cross_entropy(model(images), classes)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.detach())
        found.keep(f'{workers} workers, {context}', lambda: [losses, list(model.parameters())])
        found.keep(f'{workers} workers, {context}, pinned', all(pinned))


def gpt2(found):
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config()).eval().to(DEVICE, torch.float16)
    prompt = torch.tensor([[464, 3290, 318, 257, 845], [40, 1101, 1016, 284, 467]], device=DEVICE)

    def generate(**how):
        torch.cuda.manual_seed(11)
        with torch.no_grad():
            return model.generate(prompt, attention_mask=torch.ones_like(prompt),
                                  min_new_tokens=32, max_new_tokens=32, pad_token_id=50256,
                                  **how).tolist()

    found.keep('logits', lambda: model(prompt).logits)
    found.keep('greedy', lambda: generate(do_sample=False))
    found.keep('sampled', lambda: generate(do_sample=True, top_k=40, temperature=0.8))
    found.keep('beams', lambda: generate(do_sample=False, num_beams=3))


def resnet50(found):
    import torchvision
    for dtype, layout in ((None, torch.contiguous_format), (torch.float16, torch.channels_last)):
        torch.manual_seed(6)
        model = torchvision.models.resnet50(weights=None).to(DEVICE, memory_format=layout)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        scaler = torch.amp.GradScaler('cuda', enabled=dtype is not None)
        target = labels(16, classes=1000)
        losses = []
        for step in range(4):
            x = normal(16, 3, 160, 160, seed=step).to(memory_format=layout)
            with torch.autocast('cuda', dtype=dtype, enabled=dtype is not None):
                loss = functional.cross_entropy(model(x), target)
            optimiser.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimiser)
            scaler.update()
            losses.append(loss.item())
        name = 'fp32' if dtype is None else 'fp16, channels last'
        found.keep(f'{name}: losses', losses)
        found.keep(f'{name}: state', lambda model=model: list(model.state_dict().values()))
        model.eval()
        with torch.no_grad():
            found.keep(f'{name}: inference', lambda model=model: model(normal(2, 3, 224, 224)))


def cudnn(found):
    found.keep('version', torch.backends.cudnn.version())
    nn = torch.nn
    layers = {
        '1d': (nn.Conv1d(8, 16, 5), (4, 8, 100)), '2d': (nn.Conv2d(16, 32, 3, padding=1),
                                                        (4, 16, 40, 40)),
        '3d': (nn.Conv3d(4, 8, 3), (2, 4, 12, 12, 12)),
        'groups': (nn.Conv2d(16, 32, 3, groups=4), (4, 16, 30, 30)),
        'depthwise': (nn.Conv2d(16, 16, 3, groups=16), (4, 16, 30, 30)),
        'dilated': (nn.Conv2d(8, 8, 3, dilation=3), (2, 8, 33, 33)),
        'strided': (nn.Conv2d(3, 64, 7, stride=2, padding=3), (2, 3, 112, 112)),
        'transposed': (nn.ConvTranspose2d(16, 8, 4, stride=2), (2, 16, 20, 20)),
        'pointwise': (nn.Conv2d(64, 128, 1), (4, 64, 28, 28)),
    }
    for name, (layer, shape) in layers.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for layout in (None, torch.channels_last):
                if layout and len(shape) != 4:
                    continue

                def both_ways(layer=layer, shape=shape, dtype=dtype, layout=layout):
                    torch.manual_seed(2)
                    nn.init.normal_(layer.weight, std=0.1)
                    nn.init.zeros_(layer.bias)
                    moved = layer.to(DEVICE, dtype)
                    x = normal(*shape, dtype=dtype)
                    x = (x.to(memory_format=layout) if layout else x).requires_grad_()
                    moved.zero_grad()
                    y = moved(x)
                    y.float().square().mean().backward()
                    return [y, x.grad, moved.weight.grad, moved.bias.grad]

                kind = str(dtype).rpartition('.')[2] + (' channels last' if layout else '')
                found.keep(f'{name} {kind}', both_ways)
    for name, make in {'lstm': nn.LSTM, 'gru': nn.GRU}.items():
        def recurrent(make=make):
            torch.manual_seed(3)
            layer = make(24, 32, num_layers=2, bidirectional=True).to(DEVICE)
            x = normal(11, 5, 24).requires_grad_()
            y = layer(x)[0]
            y.sum().backward()
            return [y, x.grad]

        found.keep(name, recurrent)
