"""Whether results are PyTorch's."""

import torch

TOLERANCE = 1e-4  # of the largest magnitude of an output


def flat(value):
    if isinstance(value, (torch.Tensor, int)):
        return [torch.as_tensor(value)]
    return [t for v in value for t in flat(v)]


def same(got, want, what, tolerance=TOLERANCE, narrow=2e-2):
    """Raises AssertionError where they differ. Floats may by `tolerance`, those of 16 bits by `narrow`, of the largest magnitude."""
    got, want = flat(got), flat(want)
    assert len(got) == len(want), f"{what}: {len(got)} outputs for {len(want)}"
    for i, (g, w) in enumerate(zip(got, want)):
        assert g.dtype == w.dtype and g.shape == w.shape, f"{what}[{i}]: {g.dtype}{list(g.shape)}, expected {w.dtype}{list(w.shape)}"
        if not w.is_floating_point():
            assert torch.equal(g, w), f"{what}[{i}] differs"
            continue
        g, w = g.double(), w.double()
        assert torch.equal(torch.isnan(g), torch.isnan(w)), f"{what}[{i}]: other NaNs"
        infinite = torch.isinf(w)
        assert torch.equal(g[infinite], w[infinite]), f"{what}[{i}]: other infinities"
        rest = ~(infinite | torch.isnan(w))
        if rest.any():
            most = max(w[rest].abs().max().item(), 1e-30)
            worst = (g[rest] - w[rest]).abs().max().item() / most
            bound = tolerance if want[i].dtype in (torch.float32, torch.float64) else narrow
            assert worst <= bound, f"{what}[{i}] differs by {worst:.2e} of the largest magnitude"
