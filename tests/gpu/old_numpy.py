"""Names that NumPy has given up and that some releases of numba read when they are imported."""

import numpy

for name, successor in {'row_stack': 'vstack', 'in1d': 'isin', 'trapz': 'trapezoid'}.items():
    if not hasattr(numpy, name):
        setattr(numpy, name, getattr(numpy, successor))
