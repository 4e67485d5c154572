"""Framework item: JAX."""

import os
import subprocess
import sys


def choose_flags():
    """Options that make XLA choose kernels without timing them; an unknown one ends a process."""
    for flags in ('--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0',
                  '--xla_gpu_autotune_level=0', ''):
        environment = dict(os.environ, XLA_FLAGS=flags, JAX_PLATFORMS='cpu')
        done = subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'],
                              env=environment, capture_output=True, check=False, timeout=60)
        if done.returncode == 0:
            os.environ['XLA_FLAGS'] = flags
            return


def jax(found):
    import jax as jax_
    choose_flags()
    import jax.numpy as jnp
    import numpy as np
    if jax_.default_backend() != 'gpu':
        raise RuntimeError(f'JAX uses {jax_.default_backend()}')
    found.keep('device', lambda: jax_.devices()[0].device_kind)
    random = np.random.default_rng(1)
    x = jnp.asarray(random.standard_normal((200, 300)).astype(np.float32))
    w = jnp.asarray(random.standard_normal((300, 50)).astype(np.float32))

    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    def descend():
        step = jax_.jit(lambda w: w - 0.1 * jax_.grad(loss)(w, x))
        value = w
        for _ in range(20):
            value = step(value)
        return value

    def scanned():
        def body(carry, row):
            carry = jnp.tanh(carry + row)
            return carry, carry.sum()
        return jax_.lax.scan(body, jnp.zeros(300), x)

    def convolution():
        image = jnp.asarray(random.standard_normal((2, 3, 32, 32)).astype(np.float32))
        kernel = jnp.asarray(random.standard_normal((8, 3, 3, 3)).astype(np.float32))
        return jax_.jit(lambda a, b: jax_.lax.conv(a, b, (1, 1), 'SAME'))(image, kernel)

    def callback():
        shape = jax_.ShapeDtypeStruct(x.shape, x.dtype)
        return jax_.jit(lambda a: jax_.pure_callback(lambda v: np.asarray(v) * 2, shape, a) + 1)(x)

    def attention():
        q = jnp.asarray(random.standard_normal((2, 64, 4, 32)).astype(np.float32))
        return jax_.jit(jax_.nn.dot_product_attention)(q, q, q)

    square = x[:, :200] @ x[:, :200].T + 300 * jnp.eye(200)
    makers = {
        'matmul': lambda: jax_.jit(jnp.matmul)(x, w),
        'half': lambda: jax_.jit(jnp.matmul)(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)).astype(
            jnp.float32),
        'elementwise': lambda: jax_.jit(lambda a: jnp.sin(a) * jnp.exp(-a * a) + 1)(x),
        'value and grad': lambda: jax_.jit(jax_.value_and_grad(loss))(w, x),
        'descent': descend, 'scan': scanned, 'convolution': convolution, 'callback': callback,
        'attention': attention,
        'vmap': lambda: jax_.vmap(lambda a: jnp.outer(a, a).sum(0))(x),
        'random': lambda: [jax_.random.normal(jax_.random.key(3), (1000,)),
                           jax_.random.permutation(jax_.random.key(4), 1000)],
        'sort': lambda: [jnp.sort(x, 1), jnp.argsort(x, 0), jnp.cumsum(x, 1)],
        'fft': lambda: jnp.fft.rfft(x),
        'linalg': lambda: [jnp.linalg.cholesky(square), jnp.linalg.solve(square, x[:, :200]),
                           jnp.linalg.eigvalsh(square), jnp.linalg.svd(x, compute_uv=False)],
        'donation': lambda: jax_.jit(lambda a: a + 1, donate_argnums=0)(x + 0),
        'to host': lambda: np.asarray(jax_.device_put(np.arange(1000.0, dtype=np.float32)) * 2),
    }
    for name, make in makers.items():
        found.keep(name, make)
